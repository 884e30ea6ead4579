"""One MqttCluster object is a cluster: messages cross its replicants, and editing the object changes it."""

import pytest
from harness import KubectlError, MqttCluster, until


def test_status_tells_what_there_is(demo: MqttCluster) -> None:
    status = demo.object()["status"]
    assert status["cores"]["ready"] == 3
    assert status["replicants"]["ready"] == 2
    assert status["endpoint"]
    columns = demo.namespace.kubectl("get", "mqc", "demo").splitlines()
    assert columns[0].split()[:5] == ["NAME", "READY", "AVAILABLE", "CORES", "REPLICANTS"]
    assert columns[1].split()[:5] == ["demo", "True", "True", "3", "2"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_crosses_replicants(demo: MqttCluster, qos: int) -> None:
    here, there = demo.ready_pods("replicant")
    with (
        demo.namespace.forward(here, 1883) as here_port,
        demo.namespace.forward(there, 1883) as there_port,
        demo.client(here_port) as publisher,
        demo.client(there_port) as subscriber,
    ):
        topic = f"crossing/{qos}/temperature"
        subscriber.subscribe(f"crossing/{qos}/+", qos)
        # The subscription is the other replicant's at once; here it is known within the staleness bound, which an
        # acknowledged message waits for and a QoS 0 one doesn't. The retained one tells that both have it.
        publisher.publish(topic, "retained", qos=1, retain=True)
        assert subscriber.receive() == (topic, "retained")
        publisher.publish(topic, "21.5", qos)
        assert subscriber.receive() == (topic, "21.5")


def test_a_retained_message_is_there_for_who_comes_later_on_another_replicant(demo: MqttCluster) -> None:
    here, there = demo.ready_pods("replicant")
    with demo.namespace.forward(here, 1883) as port, demo.client(port) as publisher:
        publisher.publish("retained/state", "on", qos=1, retain=True)
    with demo.namespace.forward(there, 1883) as port, demo.client(port) as subscriber:
        subscriber.subscribe("retained/#", qos=1)
        assert subscriber.receive() == ("retained/state", "on")


def test_a_client_id_is_taken_over_across_replicants(demo: MqttCluster) -> None:
    here, there = demo.ready_pods("replicant")
    with (
        demo.namespace.forward(here, 1883) as here_port,
        demo.namespace.forward(there, 1883) as there_port,
        demo.client(here_port, client_id="device-7") as old,
        demo.client(there_port, client_id="device-7"),
    ):
        assert old.ended() == "Session taken over"


def test_the_service_leads_to_a_replicant(demo: MqttCluster) -> None:
    with demo.service_client() as client:
        client.subscribe("service/#", qos=1)
        client.publish("service/here", "hello", qos=1)
        assert client.receive() == ("service/here", "hello")


def test_pods_have_a_read_only_root_and_no_token(demo: MqttCluster) -> None:
    for pod in demo.namespace.list("pods", demo.selector):
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_drift_is_mended(demo: MqttCluster) -> None:
    demo.namespace.kubectl("delete", "service", "demo")

    def mended() -> bool:
        try:
            return bool(demo.namespace.get("service", "demo")["spec"]["ports"][0]["nodePort"] == 31883)
        except KubectlError:
            return False

    until(mended, "the deleted Service is there again", timeout_s=60)


def test_kubectl_scale_adds_and_removes_replicants(demo: MqttCluster) -> None:
    demo.namespace.kubectl("scale", "mqc/demo", "--replicas=3")
    third = demo.wait_ready_pods("replicant", 3)[-1]
    with demo.namespace.forward(third, 1883) as port, demo.client(port) as client:
        client.subscribe("scaled/#", qos=1)
        client.publish("scaled/up", "hello", qos=1)
        assert client.receive() == ("scaled/up", "hello")
    demo.namespace.kubectl("scale", "mqc/demo", "--replicas=2")
    demo.wait_ready_pods("replicant", 2)
    demo.wait_ready()
