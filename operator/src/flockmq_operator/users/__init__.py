"""MqttUsers: users of a MqttCluster, each an object of its own.

reconcile  a pass over those of one MqttCluster
look       whether the cluster still has them as the last pass left them
keeper     what is done for one of them
steps      pure: the spec + what the cluster has → what to do
quotas     pure: those of the spec, as the broker tells them
password   pure: what the Secret holds, and how to know later that it was set
api        the requests to a core
status     pure: what came of it → condition, events
"""
