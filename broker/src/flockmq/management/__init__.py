"""The management port: health, metrics, the REST API."""
