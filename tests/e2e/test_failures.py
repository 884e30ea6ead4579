"""Pods die without warning, and service goes on: what was acknowledged at QoS 1 reaches a subscriber that stayed."""

import queue
from collections.abc import Callable

from harness import Client, MqttCluster, await_route
from publisher import Publisher

BEFORE = 50
"""Messages acknowledged before the pod is killed, and again after it."""


def all_acknowledged_arrive(
    demo: MqttCluster, subscribed_at: str, victim: str, connect: Callable[[], Client] | None = None
) -> None:
    """Kill `victim` while a publisher that may have to connect again sends to a subscriber on another pod."""
    topic = f"failures/{victim}"
    with demo.namespace.forward(subscribed_at, 1883) as port, demo.client(port) as subscriber:
        subscriber.subscribe(topic, qos=1)
        with Publisher(connect or demo.service_client, topic) as publisher:
            publisher.wait_for_more(BEFORE, timeout_s=60)
            demo.kill(victim)
            publisher.wait_for_more(BEFORE, timeout_s=120)
        missing = set(publisher.acknowledged)
        while missing:
            try:
                missing.discard(int(subscriber.receive(timeout_s=15)[1]))
            except queue.Empty:
                break
    assert not missing, f"of {len(publisher.acknowledged)} acknowledged messages these were lost: {sorted(missing)}"


def test_a_replicant_is_killed(demo: MqttCluster) -> None:
    stays, victim = demo.wait_ready_pods("replicant", 2)
    all_acknowledged_arrive(demo, stays, victim)
    demo.wait_ready_pods("replicant", 2)
    subscriptions_are_made(demo)


def test_a_core_is_killed(demo: MqttCluster) -> None:
    all_acknowledged_arrive(demo, demo.wait_ready_pods("replicant", 2)[0], "demo-core-0")
    demo.wait_ready_pods("core", 3)
    subscriptions_are_made(demo)


def test_redis_is_killed(demo: MqttCluster) -> None:
    all_acknowledged_arrive(demo, demo.wait_ready_pods("replicant", 2)[0], "demo-redis-0")
    demo.wait_ready_pods("redis", 1)
    subscriptions_are_made(demo)


def test_all_cores_are_killed_at_once(demo: MqttCluster) -> None:
    for core in demo.wait_ready_pods("core", 3):
        demo.kill(core)
    demo.wait_ready_pods("core", 3)
    subscriptions_are_made(demo)


def subscriptions_are_made(demo: MqttCluster) -> None:
    """Each replicant takes a new subscription, which is a write to the log, and serves it to the other."""
    here, there = demo.wait_ready_pods("replicant", 2)
    with (
        demo.namespace.forward(here, 1883) as here_port,
        demo.namespace.forward(there, 1883) as there_port,
        demo.client(here_port) as one,
        demo.client(there_port) as other,
    ):
        one.subscribe("afterwards/one", qos=1)
        other.subscribe("afterwards/other", qos=1)
        await_route(one, "afterwards/other", other)
        await_route(other, "afterwards/one", one)
