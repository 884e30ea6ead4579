"""One user's connections end together: whatever they leave, others are served meanwhile.

It is judged by the processor time that the node takes before it answers a ping, so a busy machine spoils nothing.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import SESSION_EXPIRY, SUBACK, V5, Will, Wire, connect, disconnect, packet, subscribe
from hostile.decent import used_s
from integration.broker.conftest import Node
from integration.dev.commands import Commands

CONNECTIONS: Final = 50
COME_AND_GONE: Final = 1000
FILTERS: Final = 3000
WILLS: Final = 200
GROUPS: Final = 1000
AT_ONCE_MAX_S: Final = 0.2
"""It was 1 s. A turn, and a slice of what is left, take a tenth of that."""
PATIENCE_S: Final = 60
RESET: Final = struct.pack("ii", 1, 0)


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    """What closes the connections of a test."""
    with ExitStack() as stack:
        yield stack


def longest_ping_s(node: Node, other: Wire, is_over: Callable[[int], bool]) -> float:
    """Of all pings until `is_over`, which is told how many packets came to this client meanwhile."""
    longest_s, came, until_s = 0.0, 0, time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        begun_s = used_s(node.command)
        came += len(other.pending())
        longest_s = max(longest_s, used_s(node.command) - begun_s)
        if is_over(came):
            return longest_s
    raise AssertionError("it isn't over")


@pytest.mark.parametrize("how", ["reset", "disconnect", "clean start"])
def test_filters_of_connections_that_end_together_delay_nobody(node: Node, wires: ExitStack, how: str) -> None:
    expiry_s = 3600 if how == "clean start" else 0
    hostile = [wires.enter_context(Wire(node.mqtt)) for _ in range(CONNECTIONS)]
    for number, wire in enumerate(hostile):
        wire.send(connect(V5, f"hostile-{number}", properties=[(SESSION_EXPIRY, expiry_s)]))
        assert wire.next() is not None
        wire.send(subscribe(V5, 1, *((f"{number}/{at}/+", 0) for at in range(FILTERS))))
        assert set(wire.expect(SUBACK).reasons) == {0}
    other = wires.enter_context(Wire(node.mqtt))
    other.send(connect(V5, "other"))
    assert other.next() is not None
    assert node.metric("flockmq_subscriptions") == CONNECTIONS * FILTERS
    again = [wires.enter_context(Wire(node.mqtt)) for _ in hostile] if expiry_s else []
    for wire in hostile:
        if how == "reset":
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            wire.vanish()
        elif how == "disconnect":
            wire.send(disconnect(V5))
    for number, wire in enumerate(again):
        wire.send(connect(V5, f"hostile-{number}"))
    longest_s = longest_ping_s(node, other, lambda _: node.metric("flockmq_subscriptions") == 0)
    assert longest_s < AT_ONCE_MAX_S


def test_connections_that_are_closed_as_soon_as_they_have_sent_much_delay_nobody(node: Node, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(node.mqtt))
    other.send(connect(V5, "other", user_name=b"other"))
    assert other.next() is not None
    for number in range(COME_AND_GONE):
        with socket.create_connection(("127.0.0.1", node.mqtt), PATIENCE_S) as hostile:
            hostile.sendall(connect(V5, f"hostile-{number}", user_name=b"hostile") + packet(0xC0) * 4000)
    longest_s = longest_ping_s(node, other, lambda _: node.metric("flockmq_connections") == 1)
    assert longest_s < AT_ONCE_MAX_S


def test_wills_of_connections_that_end_together_delay_nobody(node: Node, wires: ExitStack) -> None:
    member = wires.enter_context(Wire(node.mqtt))
    member.send(connect(V5, "member"))
    assert member.next() is not None
    member.send(subscribe(V5, 1, *((f"$share/{group}/will/#", 0) for group in range(GROUPS))))
    assert set(member.expect(SUBACK).reasons) == {0}
    hostile = [wires.enter_context(Wire(node.mqtt)) for _ in range(WILLS)]
    for number, wire in enumerate(hostile):
        wire.send(connect(V5, f"hostile-{number}", will=Will("will/1", b"x")))
        assert wire.next() is not None
    other = wires.enter_context(Wire(node.mqtt))
    other.send(connect(V5, "other"))
    assert other.next() is not None
    other.subscribe(("will/1", 0))
    for wire in hostile:
        wire.vanish()
    assert longest_ping_s(node, other, lambda came: came == WILLS) < AT_ONCE_MAX_S


def test_wills_of_connections_that_end_together_disconnect_no_subscriber_that_reads(
    tmp_path: Path, wires: ExitStack
) -> None:
    """Its queue is shorter than what comes in one slice."""
    (tmp_path / "node.toml").write_text("[mqtt]\nmax_mqueue_len = 20\n")
    commands = Commands()
    wires.callback(commands.end_all)
    started = commands.start_node("--config", str(tmp_path / "node.toml"), "--data-dir", str(tmp_path / "data"))
    node = Node("n", *started)
    monitor = wires.enter_context(Wire(node.mqtt))
    monitor.send(connect(V5, "monitor"))
    assert monitor.next() is not None
    monitor.subscribe(("will/#", 1))
    hostile = [wires.enter_context(Wire(node.mqtt)) for _ in range(WILLS)]
    for number, wire in enumerate(hostile):
        wire.send(connect(V5, f"hostile-{number}", will=Will("will/1", b"%d" % number, qos=1)))
        assert wire.next() is not None
    for wire in hostile:
        wire.vanish()
    assert {monitor.receive().payload for _ in hostile} == {b"%d" % number for number in range(WILLS)}
    monitor.quiet()
