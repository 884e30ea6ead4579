"""Users as objects: from a Secret to a client that is let in, another password, what goes wrong, and the end."""

import json
import time
import urllib.request
from base64 import b64encode

import pytest
from harness import ROOT, SERVICE_HOST, SERVICE_PORT, Client, Json, MqttCluster, Namespace, User, await_route, until

SAMPLE = (ROOT / "manifests/samples/user.yaml").read_text()
NAME = "sensor-17"
FIRST, SECOND = User(NAME, "a first password"), User(NAME, "another password")
SECONDS = 15
"""Within how many a change is there: a watch and a pass, where two cores have everything to do."""


def put_password(namespace: Namespace, password: str) -> None:
    data = {"password": b64encode(password.encode()).decode()}
    metadata = {"name": f"{NAME}-password"}
    namespace.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def mqtt_user(name: str, secret: str = f"{NAME}-password", cluster: str = "demo") -> Json:
    spec = {"cluster": cluster, "passwordSecretRef": {"name": secret}}
    return {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttUser", "metadata": {"name": name}, "spec": spec}


def client_of(user: User) -> Client:
    return Client(int(SERVICE_PORT), SERVICE_HOST, user=user)


def is_let_in(user: User) -> bool:
    try:
        client_of(user).close()
    except ConnectionError:
        return False
    return True


def ready(namespace: Namespace, name: str) -> Json:
    conditions = namespace.get("mqu", name).get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == "Ready"), {"status": "Unknown", "reason": ""})


def wait_reason(namespace: Namespace, name: str, reason: str, timeout_s: float = SECONDS) -> None:
    def probe() -> bool:
        return bool(ready(namespace, name)["reason"] == reason)

    until(probe, f"MqttUser {name} says {reason}", timeout_s, lambda: ready(namespace, name))


def test_a_user_waits_for_its_secret_and_then_does_what_its_rules_say(demo: MqttCluster) -> None:
    demo.namespace.apply(SAMPLE)
    wait_reason(demo.namespace, NAME, "SecretMissing")
    put_password(demo.namespace, FIRST.password)
    wait_reason(demo.namespace, NAME, "Applied")
    until(lambda: is_let_in(FIRST), f"{NAME} is let in", SECONDS)
    with client_of(FIRST) as sensor, demo.service_client() as other:
        sensor.subscribe(f"commands/{NAME}", qos=1)
        await_route(other, f"commands/{NAME}", sensor)
        with pytest.raises(ConnectionError, match="refused"):
            sensor.subscribe("#", qos=1)
    assert NAME in demo.namespace.kubectl("get", "mqu", "--output=wide")


def test_another_password_is_set_within_seconds_and_disconnects_the_user(demo: MqttCluster) -> None:
    with client_of(FIRST) as sensor:
        began = time.monotonic()
        put_password(demo.namespace, SECOND.password)
        assert sensor.ended()
    until(lambda: is_let_in(SECOND), "the new password is taken", SECONDS - (time.monotonic() - began))
    assert not is_let_in(FIRST)


def test_what_somebody_else_changes_is_set_right(demo: MqttCluster) -> None:
    with demo.namespace.forward("demo-core-0", 18083) as port:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/users/{NAME}", method="PUT")
        request.add_header("Authorization", f"Bearer {demo.namespace.secret('demo-api-key')['key']}")
        request.data = json.dumps({"password": "by hand"}).encode()
        with urllib.request.urlopen(request, timeout=30):
            pass
    # Logins that fail are slowed down, so the event is awaited.
    regarding = f"--field-selector=involvedObject.name={NAME},reason=Mended"
    until(lambda: "Mended" in demo.namespace.kubectl("get", "events", regarding), "it is mended", 30 + SECONDS)
    until(lambda: is_let_in(SECOND), "the password is that of the Secret again", SECONDS)


def test_the_password_is_in_no_other_object_and_in_no_log(demo: MqttCluster) -> None:
    said = demo.namespace.kubectl("get", "mqu,mqc,configmaps,events", "--output=yaml")
    said += Namespace("flockmq").kubectl("logs", "--selector=app.kubernetes.io/name=flockmq-operator", "--tail=-1")
    assert NAME in said
    assert FIRST.password not in said
    assert SECOND.password not in said


def test_a_user_that_is_there_is_left_alone(demo: MqttCluster) -> None:
    first = demo.first_user()
    demo.namespace.apply(mqtt_user(first.name))
    wait_reason(demo.namespace, first.name, "UserExists")
    demo.namespace.kubectl("delete", "mqu", first.name, f"--timeout={SECONDS}s")
    assert is_let_in(first)


def test_of_two_with_one_name_the_other_says_so(demo: MqttCluster) -> None:
    second = mqtt_user("second")
    second["spec"]["username"] = NAME
    demo.namespace.apply(second)
    wait_reason(demo.namespace, "second", "NameClaimed")
    demo.namespace.kubectl("delete", "mqu", "second", f"--timeout={SECONDS}s")
    assert is_let_in(SECOND)


def test_a_deleted_user_is_let_in_no_more(demo: MqttCluster) -> None:
    demo.namespace.kubectl("delete", "mqu", NAME, "--timeout=60s")
    until(lambda: not is_let_in(SECOND), f"{NAME} is let in no more", SECONDS)


def test_a_user_goes_though_its_cluster_is_gone(demo: MqttCluster) -> None:
    gone = mqtt_user("left-behind", cluster="gone")
    gone["metadata"]["finalizers"] = ["flockmq.io/user"]
    demo.namespace.apply(gone)
    wait_reason(demo.namespace, "left-behind", "ClusterMissing")
    demo.namespace.kubectl("delete", "mqu", "left-behind", f"--timeout={SECONDS}s")
