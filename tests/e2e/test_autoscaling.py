"""The HorizontalPodAutoscaler adds a replicant when the replicants' CPU, as metrics-server saw it, asks for one; and
never goes below the floor that connections ask for.
"""

import contextlib
import socket
import threading

from harness import SERVICE_HOST, SERVICE_PORT, Json, MqttCluster, User, until

PUBLISH = b"\x30\x30\x00\x0bload/nobody" + b"x" * 35
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
BURST = 1000
"""Messages between two pings: the load waits for the broker's answer, so it is as much as one connection can give."""


def test_load_adds_a_replicant(demo: MqttCluster) -> None:
    demo.wait_ready_pods("replicant", 2)
    demo.patch({"autoscaling": {"minReplicas": 2, "maxReplicas": 3, "targetCPUUtilizationPercentage": 30}})

    def autoscalers() -> list[Json]:
        return demo.namespace.list("hpa", demo.selector)

    def measured() -> bool:
        metrics = [metric for hpa in autoscalers() for metric in hpa["status"].get("currentMetrics") or []]
        # Before the first measurement there is an entry of no type.
        return any("averageUtilization" in metric["resource"]["current"] for metric in metrics if metric["type"])

    until(measured, "the autoscaler has the replicants' CPU", 120, autoscalers)
    stop = threading.Event()
    load = threading.Thread(target=publish_until, args=(demo.first_user(), stop))
    load.start()
    try:
        demo.wait_ready_pods("replicant", 3, timeout_s=240)
    finally:
        stop.set()
        load.join()
    assert demo.object()["spec"]["replicants"]["replicas"] == 3
    back_to_two(demo)


def test_connections_raise_the_floor(demo: MqttCluster) -> None:
    demo.patch({"autoscaling": {"minReplicas": 1, "maxReplicas": 3, "connectionsPerReplicant": 2}})
    with contextlib.ExitStack() as clients:
        for _ in range(5):
            clients.enter_context(demo.service_client())
        until(lambda: demo.object()["status"].get("autoscalingFloor") == 3, "five connections ask for three", 60)
        demo.wait_ready_pods("replicant", 3, timeout_s=120)
    back_to_two(demo)


def back_to_two(demo: MqttCluster) -> None:
    """First no autoscaler, then the number: an autoscaler that still stands would write its own over it."""
    demo.patch({"autoscaling": None})
    until(lambda: not demo.namespace.list("hpa", demo.selector), "the autoscaler is gone", 60)
    demo.patch({"replicants": {"replicas": 2}})
    demo.wait_ready_pods("replicant", 2)


def connect_packet(user: User) -> bytes:
    """CONNECT of MQTT 3.1.1 with a clean session; below 128 bytes."""
    parts = [part.encode() for part in ("load", *user)]
    body = b"\x00\x04MQTT\x04\xc2\x00\x00" + b"".join(len(part).to_bytes(2) + part for part in parts)
    return b"\x10" + bytes([len(body)]) + body


def publish_until(user: User, stop: threading.Event) -> None:
    """Encoded once and sent as it is: a client that encodes each message takes more CPU than the broker."""
    with socket.create_connection((SERVICE_HOST, int(SERVICE_PORT)), timeout=30) as connection:
        connection.sendall(connect_packet(user))
        assert connection.recv(4) == b"\x20\x02\x00\x00"
        while not stop.is_set():
            connection.sendall(PUBLISH * BURST + PINGREQ)
            assert connection.recv(2) == PINGRESP
