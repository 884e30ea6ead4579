"""MQTT packets as bytes: their properties, topics and reason codes. No I/O, no sessions."""
