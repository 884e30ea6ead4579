"""Donors: nodes that send clients away to balance them. Their pods leave the clients' Service meanwhile, so that who is
sent away comes to another node.

choice     pure: what nodes tell → which pods leave, and come back
reconcile  looks at the nodes of a MqttCluster, labels their pods, and tells how many connections there are
"""
