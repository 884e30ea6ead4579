"""FlockMQ: an MQTT 3.1, 3.1.1 and 5.0 broker whose cluster runs on Kubernetes."""

__version__ = "0.1.0"
