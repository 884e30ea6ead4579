"""`kubectl flockmq`: what somebody on call asks of a MqttCluster, and does with it.

It has the rights of whoever runs it, and needs no more than to read MqttClusters and pods, and to run commands in pods
(`pods/exec`): what the broker knows, `flockmq ctl` tells in a pod of the cluster.

    main       the arguments, the exit codes
    access     the API server, by the kubeconfig
    execute    a command in a pod
    ctl        `flockmq ctl` in a pod: which pods are asked, and what they answer
    status     `status`: reads, and prints
    screen     pure: one cluster on one screen
    pods       pure: its table of pods
    advice     pure: what is wrong, and what to do about it
    clusters   pure: all clusters, a line each
    text       pure: tables, ages
    restart, drain, rollback    a command each
"""
