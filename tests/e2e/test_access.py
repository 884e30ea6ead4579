"""Who gets in, and how: users and their passwords, TLS whose certificate is renewed under way, WebSocket."""

import urllib.error
import urllib.request

import pytest
from certificates import certificate_in, certificate_secret, served_at, trusting
from harness import SERVICE_HOST, SERVICE_PORT, Client, Json, MqttCluster, User, until


@pytest.mark.parametrize("user", [None, User("mqtt", "guessed"), User("stranger", "guessed")])
def test_who_has_no_valid_password_is_refused(demo: MqttCluster, user: User | None) -> None:
    with pytest.raises(ConnectionError, match=r"refused .*(Not authorized|Bad user name or password)"):
        Client(int(SERVICE_PORT), SERVICE_HOST, user=user)


def test_the_user_that_the_operator_made_gets_in_from_outside(demo: MqttCluster) -> None:
    with demo.service_client() as client:
        client.subscribe("access/#", qos=1)
        client.publish("access/granted", "hello", qos=1)
        assert client.receive() == ("access/granted", "hello")


def test_the_api_key_opens_the_management_of_users(demo: MqttCluster) -> None:
    with demo.namespace.forward("demo-core-0", 18083) as port:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/users")
        with pytest.raises(urllib.error.HTTPError, match="401") as refusal:
            urllib.request.urlopen(request, timeout=30)
        refusal.value.close()
        request.add_header("Authorization", f"Bearer {demo.namespace.secret('demo-api-key')['key']}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert demo.first_user().name in answer.read().decode()


def test_no_secret_stands_in_the_nodes_configuration(demo: MqttCluster) -> None:
    settings = "--selector=app.kubernetes.io/instance=demo"
    config = demo.namespace.kubectl("get", "configmaps", settings, "--output=yaml")
    assert "bootstrap_file" in config
    for name in ("demo-mqtt-user", "demo-cluster-key", "demo-redis"):
        assert not [value for value in demo.namespace.secret(name).values() if len(value) > 16 and value in config]


def test_a_renewed_certificate_is_served_without_a_restart(demo: MqttCluster) -> None:
    replicant = demo.wait_ready_pods("replicant", 2)[0]
    before = demo.pods("replicant")
    renewed = certificate_secret("demo-tls")

    def is_served() -> bool:
        with demo.namespace.forward(replicant, 8883) as port:
            return served_at("127.0.0.1", port) == certificate_in(renewed)

    assert not is_served()
    demo.namespace.apply(renewed)
    # The kubelet looks at a pod's Secrets once a minute where nobody told it otherwise.
    until(is_served, "the renewed certificate is served", timeout_s=150)
    with demo.namespace.forward(replicant, 8883) as port, demo.client(port, tls=trusting(renewed)) as client:
        client.subscribe("tls/#", qos=1)
        client.publish("tls/topic", "hello", qos=1)
        assert client.receive() == ("tls/topic", "hello")
    assert started(demo.pods("replicant")) == started(before)


def started(pods: list[Json]) -> dict[str, str]:
    """Pod → when its container was started."""
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] for pod in pods
    }


def test_a_client_connects_by_web_socket(demo: MqttCluster) -> None:
    replicant = demo.wait_ready_pods("replicant", 2)[0]
    with demo.namespace.forward(replicant, 8083) as port, demo.client(port, transport="websockets") as client:
        client.subscribe("ws/#", qos=1)
        client.publish("ws/topic", "hello", qos=1)
        assert client.receive() == ("ws/topic", "hello")


def test_a_bad_configuration_is_told_in_a_condition_and_changes_nothing(demo: MqttCluster) -> None:
    demo.patch({"config": "[mqtt\n"})
    until(lambda: demo.condition("Stalled")["status"] == "True", "Stalled", 60, demo.object)
    assert "spec.config: not valid TOML" in demo.condition("Stalled")["message"]
    demo.patch({"config": ""})
    demo.wait_ready()
