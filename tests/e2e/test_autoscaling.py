"""The HorizontalPodAutoscaler adds a replicant when the replicants' CPU, as metrics-server saw it, asks for one."""

import threading

from harness import Client, Json, MqttCluster, until

PAYLOAD = "x" * 1024
BURST = 200
"""Messages between two acknowledgements of the load, so that it is bounded by what the broker takes."""


def test_load_adds_a_replicant(demo: MqttCluster) -> None:
    here = demo.wait_ready_pods("replicant", 2)[0]
    demo.patch({"autoscaling": {"minReplicas": 2, "maxReplicas": 3, "targetCPUUtilizationPercentage": 30}})

    def autoscalers() -> list[Json]:
        return demo.namespace.list("hpa", demo.selector)

    def measured() -> bool:
        metrics = [metric for hpa in autoscalers() for metric in hpa["status"].get("currentMetrics") or []]
        # Before the first measurement there is an entry of no type.
        return any("averageUtilization" in metric["resource"]["current"] for metric in metrics if metric["type"])

    until(measured, "the autoscaler has the replicants' CPU", 120, autoscalers)
    stop = threading.Event()
    with demo.namespace.forward(here, 1883) as port, Client(port) as client:
        load = threading.Thread(target=publish_until, args=(client, stop))
        load.start()
        try:
            demo.wait_ready_pods("replicant", 3, timeout_s=240)
        finally:
            stop.set()
            load.join()
    assert demo.object()["spec"]["replicants"]["replicas"] == 3
    demo.patch({"autoscaling": None, "replicants": {"replicas": 2}})
    demo.wait_ready_pods("replicant", 2)


def publish_until(client: Client, stop: threading.Event) -> None:
    while not stop.is_set():
        for _ in range(BURST):
            client.publish("load/nobody", PAYLOAD)
        client.publish("load/nobody", PAYLOAD, qos=1)
