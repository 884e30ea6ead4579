"""A cluster hibernates: it has no pods, and afterwards all that it had."""

from harness import MqttCluster, until

VOLUMES = "persistentvolumeclaims"
ENDS_S = 300.0


def test_a_cluster_that_had_no_pods_has_kept_sessions_and_retained_messages(demo: MqttCluster) -> None:
    here = demo.wait_ready_pods("replicant", 2)[0]
    with demo.namespace.forward(here, 1883) as port:
        with demo.client(port, client_id="sleeper", lasts=True) as sleeper:
            sleeper.subscribe("sleep/#", qos=1)
        with demo.client(port) as publisher:
            publisher.publish("sleep/waits", "for the sleeper", qos=1)
            publisher.publish("kept", "retained", qos=1, retain=True)
    volumes = {claim["metadata"]["uid"] for claim in demo.namespace.list(VOLUMES, demo.selector)}

    demo.patch({"hibernate": True})
    until(lambda: not any(map(demo.pods, ("core", "replicant", "redis"))) or None, "no pod is left", ENDS_S)
    demo.wait_ready()
    assert demo.condition("Available")["reason"] == "Hibernated"
    assert {claim["metadata"]["uid"] for claim in demo.namespace.list(VOLUMES, demo.selector)} == volumes

    demo.patch({"hibernate": False})
    until(lambda: demo.condition("Available")["status"] == "True" or None, "clients are served", ENDS_S)
    demo.wait_ready()
    here = demo.wait_ready_pods("replicant", 2)[0]
    with demo.namespace.forward(here, 1883) as port:
        with demo.client(port, client_id="sleeper", lasts=True) as sleeper:
            assert sleeper.receive() == ("sleep/waits", "for the sleeper")
        with demo.client(port) as anybody:
            anybody.subscribe("kept", qos=1)
            assert anybody.receive() == ("kept", "retained")
