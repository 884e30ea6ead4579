"""Clients that people use, as they are: subscribe, publish in each QoS, receive, over each transport that they know."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import shutil
import ssl
import subprocess
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import aiomqtt
import gmqtt  # type: ignore[import-untyped]
import paho.mqtt.client as paho
import pytest
from amqtt.client import MQTTClient  # type: ignore[import-untyped]
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from interop.conftest import Transports
from interop.mosquitto import program

PATIENCE_S: Final = 30.0
ROOT: Final = Path(__file__).parents[2]
MQTTJS: Final = Path(__file__).parent / "mqttjs"
QOS: Final = (0, 1, 2)

Message = tuple[str, str, int]
Round = Callable[[Transports, str, int, str], Awaitable[list[Message]]]
"""(node, transport, version 4 or 5, topic): what the client received of its own messages."""


def trust(node: Transports, transport: str) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=node.cafile) if transport in ("ssl", "wss") else None


async def with_paho(node: Transports, transport: str, version: int, topic: str) -> list[Message]:
    received: queue.Queue[Message] = queue.Queue()
    answers: queue.Queue[str] = queue.Queue()
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        protocol=MQTTProtocolVersion(version),
        transport="websockets" if transport in ("ws", "wss") else "tcp",
        reconnect_on_failure=False,
    )
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(f"connected {reason}")
    client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: answers.put(f"subscribed {reasons}")
    client.on_message = lambda _client, _data, message: received.put(
        (message.topic, message.payload.decode(), message.qos)
    )
    if transport in ("ssl", "wss"):
        client.tls_set(ca_certs=node.cafile)

    def round_trip() -> list[Message]:
        client.connect("localhost", node.ports[transport])
        client.loop_start()
        try:
            assert answers.get(timeout=PATIENCE_S) == "connected Success"
            client.subscribe(f"{topic}/#", 2)
            assert "Granted QoS 2" in answers.get(timeout=PATIENCE_S)
            for qos in QOS:
                client.publish(f"{topic}/{qos}", f"qos {qos}", qos).wait_for_publish(PATIENCE_S)
            return [received.get(timeout=PATIENCE_S) for _ in QOS]
        finally:
            client.disconnect()
            client.loop_stop()

    return await asyncio.to_thread(round_trip)


async def with_aiomqtt(node: Transports, transport: str, version: int, topic: str) -> list[Message]:
    received: list[Message] = []
    async with aiomqtt.Client(
        "localhost",
        node.ports[transport],
        protocol=aiomqtt.ProtocolVersion(version),
        transport="websockets" if transport in ("ws", "wss") else "tcp",
        tls_context=trust(node, transport),
    ) as client:
        await client.subscribe(f"{topic}/#", 2)
        for qos in QOS:
            await client.publish(f"{topic}/{qos}", f"qos {qos}", qos)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            received.append((str(message.topic), message.payload.decode(), message.qos))
            if len(received) == len(QOS):
                break
    return received


async def with_gmqtt(node: Transports, transport: str, version: int, topic: str) -> list[Message]:
    received: asyncio.Queue[Message] = asyncio.Queue()
    subscribed = asyncio.Event()
    client = gmqtt.Client(uuid.uuid4().hex)

    async def on_message(_client: object, name: str, payload: bytes, qos: int, _properties: object) -> int:
        received.put_nowait((name, payload.decode(), qos))
        return 0

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    context = trust(node, transport)
    await client.connect("localhost", node.ports[transport], ssl=context or False, version=version)
    client.subscribe(f"{topic}/#", qos=2)
    await subscribed.wait()
    for qos in QOS:
        client.publish(f"{topic}/{qos}", f"qos {qos}", qos=qos)
    messages = [await received.get() for _ in QOS]
    with contextlib.suppress(ssl.SSLError):  # it doesn't wait for the answer to its last PUBREC
        await client.disconnect()
    return messages


async def with_amqtt(node: Transports, transport: str, version: int, topic: str) -> list[Message]:
    assert version == 4
    scheme = {"tcp": "mqtt", "ssl": "mqtts", "ws": "ws", "wss": "wss"}[transport]
    path = "/mqtt" if scheme.startswith("ws") else ""
    client = MQTTClient(config={"auto_reconnect": False})
    await client.connect(f"{scheme}://localhost:{node.ports[transport]}{path}", cafile=node.cafile)
    await client.subscribe([(f"{topic}/#", 2)])
    for qos in QOS:
        await client.publish(f"{topic}/{qos}", f"qos {qos}".encode(), qos)
    messages = []
    for _ in QOS:
        message = await client.deliver_message()
        assert message is not None
        assert message.data is not None
        messages.append((message.topic, bytes(message.data).decode(), int(message.qos or 0)))
    await client.disconnect()
    return messages


async def with_mosquitto(node: Transports, transport: str, version: int, topic: str) -> list[Message]:
    """The two commands, with retained messages: nothing tells when mosquitto_sub has subscribed."""
    common = ["-h", "localhost", "-p", str(node.ports[transport]), "-V", {4: "311", 5: "5"}[version]]
    common += ["--cafile", node.cafile] if transport == "ssl" else []
    for qos in QOS:
        await printed("mosquitto_pub", *common, "-r", "-t", f"{topic}/{qos}", "-m", f"qos {qos}", "-q", str(qos))
    command = ["-t", f"{topic}/#", "-q", "2", "-C", "3", "-F", "%t %q %p"]
    lines = (await printed("mosquitto_sub", *common, *command)).splitlines()
    return [(name, payload, int(qos)) for name, qos, payload in (line.split(" ", 2) for line in lines)]


async def printed(command: str, *arguments: str) -> str:
    """What a command of Mosquitto's printed."""
    process = await asyncio.create_subprocess_exec(program(command), *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        out, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0
    return out.decode()


@pytest.fixture(scope="session")
def mqttjs() -> Path:
    """A folder with MQTT.js installed, as its lock file says."""
    node = shutil.which("npm")
    assert node, "npm isn't installed; on Debian and Ubuntu: apt-get install nodejs npm"
    folder = ROOT / "build" / "interop" / "mqttjs"
    wanted = (MQTTJS / "package-lock.json").read_text()
    lock = folder / "package-lock.json"
    if not (folder / "node_modules").exists() or not lock.exists() or lock.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(MQTTJS / name, folder)
        subprocess.run([node, "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


ALL: Final = ("tcp", "ssl", "ws", "wss")
KNOWN: Final[dict[str, tuple[Round, tuple[str, ...], tuple[int, ...]]]] = {
    "paho": (with_paho, ALL, (4, 5)),
    "aiomqtt": (with_aiomqtt, ALL, (4, 5)),
    "gmqtt": (with_gmqtt, ("tcp", "ssl"), (4, 5)),
    "amqtt": (with_amqtt, ALL, (4,)),
    "mosquitto": (with_mosquitto, ("tcp", "ssl"), (4, 5)),
}


@pytest.mark.parametrize(
    ("client", "transport", "version"),
    [
        (client, transport, version)
        for client, (_, transports, versions) in KNOWN.items()
        for transport in transports
        for version in versions
    ],
)
async def test_a_client_gets_its_messages(transports: Transports, client: str, transport: str, version: int) -> None:
    topic = f"interop/{client}/{transport}/{version}"
    async with asyncio.timeout(PATIENCE_S):
        received = await KNOWN[client][0](transports, transport, version, topic)
    assert sorted(received) == [(f"{topic}/{qos}", f"qos {qos}", qos) for qos in QOS]


@pytest.mark.parametrize("transport", ALL)
@pytest.mark.parametrize("version", [4, 5])
def test_mqttjs_gets_its_messages(transports: Transports, mqttjs: Path, transport: str, version: int) -> None:
    scheme = {"tcp": "mqtt", "ssl": "mqtts", "ws": "ws", "wss": "wss"}[transport]
    path = "/mqtt" if scheme.startswith("ws") else ""
    topic = f"interop/mqttjs/{transport}/{version}"
    url = f"{scheme}://localhost:{transports.ports[transport]}{path}"
    done = subprocess.run(
        ["node", str(MQTTJS / "round_trip.mjs"), url, str(version), topic, transports.cafile],
        cwd=mqttjs,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    received = [tuple(message) for message in json.loads(done.stdout)]
    assert sorted(received) == [(f"{topic}/{qos}", f"qos {qos}", qos) for qos in QOS]
