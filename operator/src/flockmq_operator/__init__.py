"""The operator of FlockMQ: it keeps a broker cluster the way its MqttCluster object describes it.

Read it in the order in which a change of the object travels:

    handlers   kopf's watches; an event only wakes a reconciler
    passes     the loop: when a pass is made
    reconcile  a pass over a whole object: observe, plan, apply, report
    observe    what exists in the cluster
    plan       pure: spec + what exists → what to apply, to delete, to say
    resources/ pure: spec → manifest, one noun a file
    images     pure: from where images may come
    updates    pure: whose pods a newer operator replaces now
    drift      pure: does a live object still hold what a manifest says?
    apply      server-side apply of what the plan says
    status/    pure: what exists → conditions, one a file
    revisions  the specs under which a cluster was whole, kept to go back to
    users/     MqttUsers: the users that a MqttCluster's log holds for them
    rebalances/ MqttRebalances: nodes send clients beyond their share to others, once
    kubectl/   `kubectl flockmq`, which runs at whoever is on call: it shares no process with the above

Nothing is kept in memory that the cluster doesn't hold, but for the recent history of the autoscaling floor; the
operator can be killed at any moment, and adds no finalizer but to a MqttUser whose user it has to remove, and to a
MqttRebalance that runs.
"""
