"""What the end-to-end tests are written with: kubectl, waiting with a deadline, and real MQTT clients.

The tests run where the cluster's addresses are reached (see `run`), outside of the cluster. Nothing waits without a
deadline, and a deadline that passes says what was awaited and what was there instead.
"""

import base64
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import queue
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICE_HOST, _, SERVICE_PORT = os.environ.get("E2E_MQTT_ADDRESS", "127.0.0.1:31883").rpartition(":")
"""Where NodePort 31883 of the cluster is reached from here."""

Json = dict[str, Any]
T = TypeVar("T")


# ---- kubectl -------------------------------------------------------------------------------------------------------


class KubectlError(Exception):
    """What kubectl wrote to its standard error."""


def kubectl(*arguments: str, stdin: str | None = None, timeout_s: float = 120) -> str:
    done = subprocess.run(
        ["kubectl", *arguments], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise KubectlError(done.stderr.strip())
    return done.stdout


def helm(*arguments: str) -> str:
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Namespace:
    """A namespace in which the restricted Pod Security Standard is enforced."""

    name: str

    def create(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "flockmq.io/e2e": "true"}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": labels}}
        kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def delete(self, timeout_s: float = 120) -> None:
        arguments = ["--ignore-not-found", f"--timeout={timeout_s}s"]
        kubectl("delete", "namespace", self.name, *arguments, timeout_s=timeout_s + 10)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        return kubectl("--namespace", self.name, *arguments, stdin=stdin, timeout_s=timeout_s)

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self.kubectl("get", kind, name, "--output=json"))
        return found

    @functools.cache  # noqa: B019 (a Secret with a password is made once; a Namespace is two words)
    def secret(self, name: str) -> dict[str, str]:
        """Key → value, decoded."""
        data: dict[str, str] = self.get("secret", name)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def list(self, kinds: str, selector: str = "") -> list[Json]:
        found: list[Json] = json.loads(self.kubectl("get", kinds, "--selector", selector, "--output=json"))["items"]
        return found

    def apply(self, manifest: str | Json) -> None:
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=e2e", "-f", "-", stdin=text)

    def wait(self, target: str, condition: str, timeout_s: float) -> None:
        """Until `target` (kind/name) has `condition` (as `kubectl wait --for` takes it)."""
        self.kubectl("wait", target, f"--for={condition}", f"--timeout={timeout_s}s", timeout_s=timeout_s + 10)

    @contextlib.contextmanager
    def forward(self, pod: str, port: int) -> Iterator[int]:
        """A port of 127.0.0.1 that leads to a port of that very pod."""
        command = ["kubectl", "--namespace", self.name, "port-forward", f"pod/{pod}", f":{port}", "--address=127.0.0.1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
                assert found, f"kubectl port-forward pod/{pod}: {line}"
                yield int(found[1])
            finally:
                process.terminate()


def is_ready(pod: Json) -> bool:
    """Whether it is ready, and isn't about to end."""
    conditions = [(condition["type"], condition["status"]) for condition in pod["status"].get("conditions", [])]
    return "deletionTimestamp" not in pod["metadata"] and ("Ready", "True") in conditions


@dataclasses.dataclass(frozen=True)
class MqttCluster:
    """A MqttCluster and the objects that are made for it."""

    namespace: Namespace
    name: str

    @property
    def selector(self) -> str:
        return f"app.kubernetes.io/name=flockmq,app.kubernetes.io/instance={self.name}"

    def object(self) -> Json:
        return self.namespace.get("mqc", self.name)

    def patch(self, spec: Json) -> None:
        self.namespace.kubectl("patch", "mqc", self.name, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def condition(self, kind: str) -> Json:
        """The condition of that type, if it speaks of the newest generation; else one that is Unknown."""
        found = self.object()
        for condition in found.get("status", {}).get("conditions", []):
            if condition["type"] == kind and condition.get("observedGeneration") == found["metadata"]["generation"]:
                answer: Json = condition
                return answer
        return {"type": kind, "status": "Unknown"}

    def wait_ready(self, timeout_s: float = 240) -> None:
        def ready() -> bool:
            return bool(self.condition("Ready")["status"] == "True")

        until(ready, f"MqttCluster {self.name} is Ready", timeout_s, lambda: self.object().get("status"))

    def pods(self, component: str) -> list[Json]:
        return self.namespace.list("pods", f"{self.selector},app.kubernetes.io/component={component}")

    def ready_pods(self, component: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods(component) if is_ready(pod))

    def wait_ready_pods(self, component: str, count: int, timeout_s: float = 180) -> list[str]:
        """The names of the component's pods, once `count` are ready and no other pod is left."""

        def ready() -> list[str] | None:
            names = self.ready_pods(component)
            return names if len(names) == count == len(self.pods(component)) else None

        def states() -> list[str]:
            return [f"{pod['metadata']['name']} ready={is_ready(pod)}" for pod in self.pods(component)]

        return until(ready, f"{count} {component} pods of {self.name} are ready", timeout_s, states)

    def first_user(self) -> "User":
        """The one that the operator made."""
        secret = self.namespace.secret(f"{self.name}-mqtt-user")
        return User(secret["username"], secret["password"])

    def client(self, port: int, host: str = "127.0.0.1", **options: Any) -> "Client":
        """A client of whoever listens there, as the first user."""
        return Client(port, host, user=self.first_user(), **options)

    def service_client(self) -> "Client":
        """A client of whichever replicant the Service leads to, as the first user."""
        return self.client(int(SERVICE_PORT), SERVICE_HOST)

    def redis_cli(self, pod: str, *arguments: str, container: str = "redis", timeout_s: float = 120) -> str:
        """valkey-cli in a pod of Redis, as its administrator."""
        read = "$(cat /etc/flockmq/secrets/password)"
        script = f'REDISCLI_AUTH={read} VALKEYCLI_AUTH={read} exec valkey-cli ${{TLS:+--tls --cacert $TLS/ca.crt}} "$@"'
        command = ["exec", pod, f"--container={container}", "--", "sh", "-c", script, "sh", *arguments]
        return self.namespace.kubectl(*command, timeout_s=timeout_s)

    def kill(self, pod: str) -> None:
        """End a pod without the time to hand anything over: the kubelet gives it two seconds at most."""
        self.namespace.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def until(probe: Callable[[], T | None], what: str, timeout_s: float, instead: Callable[[], object] = str) -> T:
    """The first true answer of `probe`; `instead` is asked what there was when the deadline passed."""
    deadline = time.monotonic() + timeout_s
    while True:
        if answer := probe():
            return answer
        assert time.monotonic() < deadline, f"after {timeout_s} s it is not so that {what}: {instead()}"
        time.sleep(0.5)


# ---- MQTT ----------------------------------------------------------------------------------------------------------

ANSWER_S = 30.0
"""How long a client waits for any one packet."""


class User(NamedTuple):
    name: str
    password: str


class Client:
    """A paho client of MQTT 5 whose calls return when the broker has answered; it never reconnects by itself."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        client_id: str = "",
        user: User | None = None,
        tls: ssl.SSLContext | None = None,
        transport: Literal["tcp", "websockets"] = "tcp",
        lasts: bool = False,
    ) -> None:
        """`lasts`: the session outlives the connection, by an hour."""
        self.received: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._answers: queue.Queue[tuple[str, object]] = queue.Queue()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            transport=transport,
            reconnect_on_failure=False,
        )
        if user:
            self._client.username_pw_set(*user)
        if tls:
            self._client.tls_set_context(tls)
        # paho calls these from its own thread; what they get is handed to the thread that waits.
        self._client.on_connect = lambda client, data, flags, reason, _: self._answer("connected", [reason])
        self._client.on_disconnect = lambda client, data, flags, reason, _: self._answers.put(("disconnected", reason))
        self._client.on_subscribe = lambda client, data, mid, reasons, _: self._answer("subscribed", reasons)
        self._client.on_message = lambda client, data, message: self.received.put(message)
        try:
            self._client.connect(
                host, port, keepalive=20, clean_start=not lasts, properties=lasting() if lasts else None
            )
        except OSError as error:
            raise ConnectionError(f"{host}:{port}: {error}") from error
        self._client.loop_start()
        try:
            self._expect("connected")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        code, _ = self._client.subscribe(topic_filter, qos)
        assert code == MQTTErrorCode.MQTT_ERR_SUCCESS
        self._expect("subscribed")

    def publish(
        self, topic: str, payload: str, qos: int = 0, retain: bool = False, timeout_s: float = ANSWER_S
    ) -> None:
        """Returns when the message is acknowledged; raises ConnectionError when it isn't in time."""
        info = self._client.publish(topic, payload, qos, retain)
        try:
            info.wait_for_publish(timeout_s)
            acknowledged = info.is_published()
        except (RuntimeError, ValueError) as error:
            raise ConnectionError(str(error)) from error
        if not acknowledged:
            raise ConnectionError(f"no acknowledgement of {topic} {payload} within {timeout_s} s")

    def receive(self, timeout_s: float = ANSWER_S) -> tuple[str, str]:
        """The next message: its topic and payload."""
        message = self.received.get(timeout=timeout_s)
        return message.topic, message.payload.decode()

    def ended(self) -> str:
        """Why the broker ended this connection, once it did."""
        kind, reason = self._answers.get(timeout=ANSWER_S)
        assert kind == "disconnected", f"{kind}: {reason}"
        return str(reason)

    def _expect(self, kind: str) -> None:
        try:
            got, detail = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise ConnectionError(f"no answer within {ANSWER_S} s; awaited: {kind}") from None
        if got != kind:
            raise ConnectionError(f"awaited: {kind}; got: {got} {detail}")

    def _answer(self, kind: str, reasons: list[ReasonCode]) -> None:
        self._answers.put(("refused" if any(reason.is_failure for reason in reasons) else kind, reasons))


def await_route(publisher: Client, topic: str, subscriber: Client) -> None:
    """Publish until something comes: a SUBACK speaks for its own node alone, and others know of the subscription within
    the staleness bound.
    """

    def came() -> bool:
        publisher.publish(topic, "probe", qos=1)
        with contextlib.suppress(queue.Empty):
            return subscriber.receive(timeout_s=1) == (topic, "probe")
        return False

    until(came, f"what is published to {topic} comes", ANSWER_S)


def lasting() -> Properties:
    """Of a CONNECT whose session outlives its connection."""
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3600
    return properties
