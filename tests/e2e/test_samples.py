"""Each sample of manifests/samples is a MqttCluster that becomes Ready as it stands, and carries a message."""

import pathlib

import pytest
from harness import ROOT, Client, MqttCluster, Namespace

SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_becomes_ready_and_carries_a_message(operator: None, sample: pathlib.Path) -> None:
    namespace = Namespace(f"flockmq-sample-{sample.stem}")
    namespace.create()
    namespace.apply(sample.read_text())
    clusters = [MqttCluster(namespace, found["metadata"]["name"]) for found in namespace.list("mqc")]
    assert clusters, f"{sample.name} holds no MqttCluster"
    for cluster in clusters:
        cluster.wait_ready()
        with namespace.forward(cluster.ready_pods("replicant")[-1], 1883) as port, Client(port) as client:
            client.subscribe("sample/#", qos=1)
            client.publish("sample/topic", "hello", qos=1)
            assert client.receive() == ("sample/topic", "hello")
    namespace.delete()
