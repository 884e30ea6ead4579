"""MqttRebalances: a rebalance of a MqttCluster, once, each an object of its own.

reconcile  a pass over those of one MqttCluster
keeper     what is done for one of them
progress   pure: what nodes tell → how far it is
api        the requests to a core
status     pure: how far it is → status, events
"""
