"""MqttUsers: users of a MqttCluster, each an object of its own. `reconcile` makes the passes."""
