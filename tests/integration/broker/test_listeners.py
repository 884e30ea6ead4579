"""Real clients over every kind of listener of one real node; certificates swapped under it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
import trustme
from paho.mqtt.enums import CallbackAPIVersion

from integration.broker.conftest import eventually
from integration.dev.commands import PATIENCE_S, Command, Commands

CONFIG = """
[listeners.ssl.default]
bind = "127.0.0.1:0"
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
[listeners.ssl.verified]
bind = "127.0.0.1:0"
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
cacertfile = "{folder}/ca.pem"
verify = "peer"
fail_if_no_peer_cert = true
[listeners.ws.default]
bind = "127.0.0.1:0"
[listeners.wss.default]
bind = "127.0.0.1:0"
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
path = "/over/there"
[listeners.unix.default]
bind = "{folder}/mqtt.sock"
[listeners.tcp.narrow]
bind = "127.0.0.1:0"
zone = "narrow"
[listeners.tcp.closed]
bind = "127.0.0.1:0"
allow = ["192.0.2.0/24"]
[zones.narrow]
max_packet_size = "1KB"
"""


class Listeners:
    """One node with all of them, and an authority that clients trust."""

    def __init__(self, flockmq: Commands, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")
        self.renew("localhost")
        config = folder / "flockmq.toml"
        config.write_text(CONFIG.format(folder=folder))
        self.command: Command
        self.command, told = flockmq.start_node("--config", str(config), "--data-dir", str(folder / "data"))
        self.ports: dict[str, int] = told["listeners"]  # type: ignore[assignment]

    def renew(self, *hosts: str) -> None:
        leaf = self.authority.issue_cert(*hosts)
        for name, pem in (("server.key", leaf.private_key_pem), ("server.pem", leaf.cert_chain_pems[0])):
            pem.write_to_path(self.folder / f"new.{name}")
            (self.folder / f"new.{name}").rename(self.folder / name)

    def client_context(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if name is not None:
            self.authority.issue_cert("device.example.com", common_name=name).configure_cert(context)
        return context

    def connected(self, name: str, context: ssl.SSLContext | None = None) -> Client:
        kind = name.partition(":")[0]
        transport = {"ws": "websockets", "wss": "websockets", "unix": "unix"}.get(kind, "tcp")
        host = str(self.folder / "mqtt.sock") if kind == "unix" else "localhost"
        return Client(host, self.ports[name] or 1, transport, context)


class Client:
    """paho over any transport. `messages` are what it subscribed to."""

    def __init__(self, host: str, port: int, transport: str, context: ssl.SSLContext | None) -> None:
        self.messages: queue.Queue[bytes] = queue.Queue()
        self.subscribed = threading.Event()
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            transport=transport,  # type: ignore[arg-type]
            reconnect_on_failure=False,
        )
        if transport == "websockets" and context is not None:
            self.paho.ws_set_options("/over/there")
        if context is not None:
            self.paho.tls_set_context(context)
        self.paho.on_connect = lambda client, *_: client.subscribe("t", 1)
        self.paho.on_subscribe = lambda *_: self.subscribed.set()
        self.paho.on_message = lambda _client, _userdata, message: self.messages.put(message.payload)
        self.paho.connect(host, port)
        self.paho.loop_start()
        assert self.subscribed.wait(PATIENCE_S)

    def echo(self, payload: bytes) -> bytes:
        self.paho.publish("t", payload, qos=1)
        return self.messages.get(timeout=PATIENCE_S)

    def end(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def listeners(flockmq: Commands, tmp_path: Path) -> Listeners:
    return Listeners(flockmq, tmp_path)


@pytest.mark.parametrize("name", ["tcp:default", "ssl:default", "ws:default", "wss:default", "unix:default"])
def test_messages_of_each_size_cross_each_listener(listeners: Listeners, name: str) -> None:
    client = listeners.connected(name, listeners.client_context() if name.startswith(("ssl", "wss")) else None)
    for size in (0, 1, 125, 70_000, 1_000_000):
        payload = os.urandom(size)
        assert client.echo(payload) == payload
    client.end()


def test_a_listener_that_verifies_takes_only_those_with_a_certificate(listeners: Listeners) -> None:
    with_one = listeners.connected("ssl:verified", listeners.client_context("device-7"))
    assert with_one.echo(b"x") == b"x"
    with_one.end()
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"), shown(listeners, "ssl:verified") as without:
        without.recv(1)


def test_a_new_certificate_is_used_without_a_restart_and_connections_stay(listeners: Listeners) -> None:
    before = listeners.connected("ssl:default", listeners.client_context())
    listeners.renew("localhost", "renewed.example.com")
    listeners.command.process.send_signal(signal.SIGHUP)
    eventually(lambda: "renewed.example.com" in names(listeners), "the new certificate is shown")
    assert before.echo(b"still here") == b"still here"
    before.end()


@contextlib.contextmanager
def shown(listeners: Listeners, name: str) -> Iterator[ssl.SSLSocket]:
    """A connection of TLS alone, without a certificate of its own."""
    context, port = listeners.client_context(), listeners.ports[name]
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        yield tls


def names(listeners: Listeners) -> str:
    """The hosts of the certificate that a new client is shown."""
    with shown(listeners, "ssl:default") as tls:
        return str(tls.getpeercert())


def test_a_listener_has_its_zones_limits_and_its_networks(listeners: Listeners) -> None:
    narrow = listeners.connected("tcp:narrow")
    assert narrow.echo(bytes(900)) == bytes(900)
    ended = threading.Event()
    narrow.paho.on_disconnect = lambda *_: ended.set()
    narrow.paho.publish("t", bytes(2000), qos=1)
    assert ended.wait(PATIENCE_S)
    narrow.paho.loop_stop()
    with socket.create_connection(("127.0.0.1", listeners.ports["tcp:closed"]), PATIENCE_S) as refused:
        assert refused.recv(1) == b""
