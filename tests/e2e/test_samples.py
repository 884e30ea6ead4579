"""Each MqttCluster of manifests/samples becomes Ready as it stands, and carries a message."""

import pathlib

import pytest
import yaml
from certificates import certificate_secret, trusting
from harness import ROOT, Client, Json, MqttCluster, Namespace, User

SAMPLES = sorted(
    path for path in (ROOT / "manifests/samples").glob("*.yaml") if "kind: MqttCluster\n" in path.read_text()
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_becomes_ready_and_carries_a_message(operator: None, sample: pathlib.Path) -> None:
    namespace = Namespace(f"flockmq-sample-{sample.stem}")
    namespace.create()
    certificates = [certificate_secret(name) for name in certificates_of(sample)]
    for certificate in certificates:
        namespace.apply(certificate)
    namespace.apply(sample.read_text())
    clusters = [MqttCluster(namespace, found["metadata"]["name"]) for found in namespace.list("mqc")]
    assert clusters, f"{sample.name} holds no MqttCluster"
    for cluster in clusters:
        cluster.wait_ready()
        spec = cluster.object()["spec"]
        user, anonymous = user_of(cluster, spec), spec["authentication"]["allowAnonymous"]
        tls = trusting(certificates[0]) if certificates else None
        topic = f"devices/{user.name}/hello"
        with namespace.forward(cluster.ready_pods("replicant")[-1], spec["listeners"][0]["port"]) as port:
            with Client(port, client_id=f"{user.name}-1", user=None if anonymous else user, tls=tls) as client:
                client.subscribe(topic, qos=1)
                client.publish(topic, "hello", qos=1)
                assert client.receive() == (topic, "hello")
            if not anonymous:
                with pytest.raises(ConnectionError, match="refused"):
                    Client(port, tls=tls)
    namespace.delete()


def certificates_of(sample: pathlib.Path) -> set[str]:
    """The Secrets with certificates that the sample says are needed."""
    specs = [item["spec"] for item in yaml.safe_load_all(sample.read_text()) if item["kind"] == "MqttCluster"]
    listeners = [listener for spec in specs for listener in spec.get("listeners", ())]
    return {listener["tls"]["secretName"] for listener in listeners if "tls" in listener}


def user_of(cluster: MqttCluster, spec: Json) -> User:
    """Somebody whom the sample lets in."""
    users = spec["authentication"].get("users")
    if users is None:
        return cluster.first_user()
    name, password, _ = cluster.namespace.secret(users["secretName"])[users["key"]].splitlines()[1].split(",")
    return User(name, password)
