"""MQTT's bytes: packets, their properties, topics, reason codes. Pure; it knows of no session and no node."""
