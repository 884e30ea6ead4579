"""Redis with replicas survives the loss of its primary, and speaks TLS alone; somebody else's is reached by TLS as two
users; and what nodes say to one another is TLS too."""

import base64
import contextlib
import functools
import pathlib
import socket
import ssl
from collections.abc import Iterator

import pytest
from certificates import authority_secret
from harness import KubectlError, MqttCluster, Namespace, until
from test_failures import all_acknowledged_arrive, subscriptions_are_made

REDIS, SENTINEL = 6379, 26379
HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def trio(operator: None) -> Iterator[MqttCluster]:
    namespace = Namespace("flockmq-trio")
    namespace.create()
    namespace.apply((HERE / "replicated.yaml").read_text())
    cluster = MqttCluster(namespace, "trio")
    cluster.wait_ready(timeout_s=360)
    yield cluster
    namespace.delete()


def primary_of(cluster: MqttCluster) -> str:
    """As a majority of the Sentinels says; empty: they don't agree."""
    said = []
    for pod in cluster.ready_pods("redis"):
        question = ["-p", "26379", "--user", "operator", "sentinel", "get-master-addr-by-name", "flockmq"]
        with contextlib.suppress(Exception):
            said.append(cluster.redis_cli(pod, *question, container="sentinel", timeout_s=10).split()[0])
    return max(said, key=said.count) if said and said.count(max(said, key=said.count)) > 1 else ""


def wait_for_one_primary(cluster: MqttCluster) -> None:
    """And two replicas that are in step."""

    def roles() -> list[str]:
        said = [cluster.redis_cli(pod, "role").split() for pod in cluster.wait_ready_pods("redis", 3)]
        return sorted(f"slave {words[3]}" if words[0] == "slave" else words[0] for words in said)

    in_step = ["master", "slave connected", "slave connected"]
    until(lambda: roles() == in_step, "there is one primary, with two replicas", 60, roles)


def test_a_primary_and_two_replicas(trio: MqttCluster) -> None:
    assert primary_of(trio) == "trio-redis-0"
    wait_for_one_primary(trio)
    assert trio.condition("RedisReady")["message"] == "a primary and 2 replicas of it answer"


def test_the_primary_is_killed_and_nothing_acknowledged_is_lost(trio: MqttCluster) -> None:
    primary = primary_of(trio)
    here, there = trio.wait_ready_pods("replicant", 2)
    with trio.namespace.forward(there, 1883) as port:
        all_acknowledged_arrive(trio, here, primary, functools.partial(trio.client, port))
    wait_for_one_primary(trio)
    subscriptions_are_made(trio)


def test_a_primary_that_stays_away_is_succeeded(trio: MqttCluster) -> None:
    for _ in range(2):  # the second one was a replica before
        primary = primary_of(trio)
        until(functools.partial(succeeded, trio, primary), f"another one than {primary} is the primary", 60)
        wait_for_one_primary(trio)
        subscriptions_are_made(trio)


def succeeded(cluster: MqttCluster, primary: str) -> bool:
    """A pod that is killed is back within seconds: it is killed again until Sentinels have had enough."""
    cluster.kill(primary)
    return primary_of(cluster) not in ("", primary)


def test_a_drained_primary_hands_over(trio: MqttCluster) -> None:
    primary = primary_of(trio)
    trio.namespace.kubectl("delete", "pod", primary, "--wait=false")
    until(lambda: primary_of(trio) not in ("", primary), "another one is the primary", 60)
    wait_for_one_primary(trio)
    subscriptions_are_made(trio)


def test_the_whole_of_redis_dies_at_once_and_comes_back(trio: MqttCluster) -> None:
    for pod in trio.wait_ready_pods("redis", 3):
        trio.kill(pod)
    trio.wait_ready_pods("redis", 3, timeout_s=120)
    wait_for_one_primary(trio)
    subscriptions_are_made(trio)


def test_redis_speaks_tls_alone(trio: MqttCluster) -> None:
    for port in (REDIS, SENTINEL):
        with (
            trio.namespace.forward("trio-redis-0", port) as here,
            socket.create_connection(("127.0.0.1", here)) as plain,
        ):
            plain.settimeout(10)
            plain.sendall(b"PING\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"NOAUTH" not in (said := plain.recv(1024)), said
        assert shows(trio, "trio-redis-0", port)
    with pytest.raises(KubectlError, match=r"redis\.tls can't change"):
        trio.patch({"redis": {"tls": False}})


def test_another_authority_is_taken_up_without_a_restart_of_redis(trio: MqttCluster) -> None:
    starts = restarts_of_redis(trio)
    former = certificates(trio)["ca.crt"]
    trio.namespace.kubectl("delete", "secret", "trio-redis-tls")
    until(lambda: certificates(trio).get("ca.crt") not in (None, former), "there is another authority", 60)
    for pod in sorted(starts):
        for port in (REDIS, SENTINEL):
            until(functools.partial(shows, trio, pod, port), f"{pod} shows what it signed at {port}", 300)
    assert restarts_of_redis(trio) == starts
    wait_for_one_primary(trio)
    subscriptions_are_made(trio)


def certificates(cluster: MqttCluster) -> dict[str, str]:
    """The Secret's data; empty: there is none."""
    try:
        data: dict[str, str] = cluster.namespace.get("secret", f"{cluster.name}-redis-tls")["data"]
    except KubectlError:
        return {}
    return data


def shows(cluster: MqttCluster, pod: str, port: int) -> bool:
    """Whether it shows a certificate of the authority in the Secret, in its own name."""
    context = ssl.create_default_context(cadata=base64.b64decode(certificates(cluster)["ca.crt"]).decode())
    with (
        contextlib.suppress(OSError),
        cluster.namespace.forward(pod, port) as here,
        socket.create_connection(("127.0.0.1", here), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname=pod) as tls,
    ):
        return tls.version() == "TLSv1.3"
    return False


def restarts_of_redis(cluster: MqttCluster) -> dict[str, int]:
    statuses = {pod["metadata"]["name"]: pod["status"]["containerStatuses"] for pod in cluster.pods("redis")}
    return {
        pod: status["restartCount"] for pod, found in statuses.items() for status in found if status["name"] == "redis"
    }


def test_links_are_tls_and_believe_only_their_own(trio: MqttCluster) -> None:
    secret = trio.namespace.secret("trio-links")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=secret["ca.crt"])
    with trio.namespace.forward("trio-core-0", 4370) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"\0" * 64)
            assert plain.recv(1024)[:1] in (b"", b"\x15"), "neither silence nor a TLS alert: frames in the clear"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw, context.wrap_socket(raw) as stranger:
            assert stranger.version() == "TLSv1.3"  # the authority is the cluster's own; a stranger has no certificate
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert not stranger.recv(1024), "a stranger is listened to"


def test_a_redis_behind_tls_with_two_users(operator: None) -> None:
    namespace = Namespace("flockmq-external")
    namespace.create()
    namespace.apply(authority_secret("tls-redis"))
    namespace.apply((HERE / "external.yaml").read_text())
    guest = MqttCluster(namespace, "guest")
    guest.wait_ready()
    with namespace.forward(guest.ready_pods("replicant")[0], 1883) as port, guest.client(port) as client:
        client.subscribe("external/#", qos=1)
        client.publish("external/topic", "hello", qos=1)
        assert client.receive() == ("external/topic", "hello")
    namespace.delete()
