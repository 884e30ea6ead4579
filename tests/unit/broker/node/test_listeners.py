"""What listeners may take of a node's memory."""

from __future__ import annotations

import errno
import socket
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from flockmq.config.listener_settings import ListenersSettings, TcpListenerSettings
from flockmq.config.schema import Config, MqttSettings, NodeSettings
from flockmq.config.values import Address
from flockmq.errors import AddressInUse
from flockmq.node.listeners import Listeners, listening_settings, shares
from flockmq.session.limits import Limits
from unit.broker.transport.harness import Served

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("node", "memory", "expected"),
    [
        (NodeSettings(), 64 * MIB, (4 * MIB, 8_192, 4_096)),
        (NodeSettings(), 256 * MIB, (16 * MIB, 32_768, 16_384)),
        (NodeSettings(), 24 * 1024 * MIB, (24 * MIB, 1_000_000, 500_000)),
        (NodeSettings(max_connections=100), 256 * MIB, (16 * MIB, 100, 50)),
        (NodeSettings(max_connections=1), 256 * MIB, (16 * MIB, 1, 1)),
        (
            NodeSettings(max_unauthenticated_bytes=64 * MIB, max_connections_per_address=7),
            256 * MIB,
            (64 * MIB, 32_768, 7),
        ),
    ],
)
def test_what_is_not_configured_follows_the_memory(
    node: NodeSettings, memory: int, expected: tuple[int, int, int]
) -> None:
    assert shares(node, memory, 2**31) == expected


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(256, 128), (1024, 512), (4096, 3072), (1_048_576, 1_000_000)]
)
def test_clients_leave_file_descriptors_to_the_node(descriptors: int, connections: int) -> None:
    assert shares(NodeSettings(), 24 * 1024 * MIB, descriptors)[1] == connections


def test_two_listeners_at_one_address_are_said_before_the_node_joins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    named = TcpListenerSettings(bind=Address("127.0.0.1", port))
    bound = Listeners(Config(listeners=ListenersSettings(tcp={"default": named, "second": named})), 1024 * MIB)
    try:
        with pytest.raises(AddressInUse, match=rf"listeners.tcp.second.bind: 127.0.0.1:{port} is in use"):
            bound.bind()
    finally:
        bound.close()


def test_an_address_that_another_process_has_by_now_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listeners, "_listener", Mock())
    bound = Listeners(
        Config(listeners=ListenersSettings(tcp={"default": TcpListenerSettings(bind=Address("127.0.0.1", 0))})),
        1024 * MIB,
    )
    bound.bind()
    reactor = Mock()
    reactor.listen.side_effect = OSError(errno.EADDRINUSE, "Address already in use")
    try:
        with pytest.raises(AddressInUse, match=r"listeners.tcp.default.bind: 127.0.0.1:0 is in use; .* --listen"):
            bound.open(reactor, {"default": Limits()})
    finally:
        bound.close()


def test_other_settings_hold_for_listeners_that_are_open() -> None:
    limits = {"default": Limits(), "slow": Limits("slow")}
    tcp = TcpListenerSettings(bind=Address("127.0.0.1", 0), zone="slow")
    config = Config(zones={"slow": MqttSettings()}, listeners=ListenersSettings(tcp={"default": tcp}))
    listeners = Listeners(config, 1024 * MIB)
    listeners.bind()
    with Served() as served:
        listeners.open(served.reactor, limits)
        (opened,) = served.reactor.table.acceptor.listeners.values()
        limits["slow"] = Limits("slow", max_inflight=3)
        changed = Config(
            node=NodeSettings(max_connections=100, max_conn_rate=5.0),
            zones={"slow": MqttSettings(messages_rate=2.0)},
            listeners=ListenersSettings(tcp={"default": replace(tcp, max_connections=7, bytes_rate=9.0)}),
        )
        listeners.configure(listening_settings(changed))
        assert (opened.settings.limits, opened.settings.client_rates.messages_rate) == (limits["slow"], 2.0)
        assert opened.meter is not None
        assert (opened.settings.max_connections, opened.settings.rates.bytes_rate) == (7, 9.0)
        assert served.reactor.max_connections() == 100
        connection, _ = served.opened(opened)
        assert connection.limits.max_inflight == 3
        listeners.configure(listening_settings(config))
        assert (opened.settings.max_connections, served.reactor.table.acceptor.conn_rate) == (1_000_000, None)
