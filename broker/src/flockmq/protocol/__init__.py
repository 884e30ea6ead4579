"""The MQTT conversation with one client: CONNECT, publishes in order, SUBSCRIBE, acknowledgements. No I/O."""
