"""The operator of FlockMQ: it keeps a broker cluster the way its MqttCluster object describes it.

Read it in the order in which a change of the object travels:

    handlers   kopf's watches; an event only wakes the reconciler
    reconcile  one pass at a time over a whole object: observe, plan, apply, report
    observe    what exists in the cluster
    plan       pure: spec + what exists → what to apply, to delete, to say
    resources/ pure: spec → manifest, one noun a file
    images     pure: from where images may come
    drift      pure: does a live object still hold what a manifest says?
    apply      server-side apply of what the plan says
    status/    pure: what exists → conditions, one a file

Nothing is kept in memory that the cluster doesn't hold, but for the recent history of the autoscaling floor; the
operator can be killed at any moment, and adds no finalizer to anything.
"""
