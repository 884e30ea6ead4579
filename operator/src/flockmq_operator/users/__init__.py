"""MqttUsers: users of a MqttCluster, each an object of its own.

reconcile       a pass over those of one MqttCluster
secret_watch    which Secrets change: names alone
access          which core is asked, and with which key
keeper          what is done for one of them
steps           pure: the spec + what the cluster has → what to do
password        pure: what the Secret holds, and how to know later that it was set
management_api  the requests to the core
status          pure: what came of it → condition, events
"""
