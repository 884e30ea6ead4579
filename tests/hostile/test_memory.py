"""A node with an embedded Valkey in a small container: no user can have it killed for memory.

The container is a real cgroup where this machine lets the tests make one. Elsewhere the node is
told how much memory it has, and what it takes is looked at all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    SUBACK,
    TOPIC_ALIAS,
    V5,
    Wire,
    connect,
    packet,
    publish,
    subscribe,
)
from integration.broker.conftest import Node, eventually
from integration.dev.commands import Commands

MIB: Final = 1024 * 1024
CONTAINER_BYTES: Final = 256 * MIB
REFUSED: Final = 0x97
PLACES: Final = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
"""Of cgroups of version 1, and 2: where a new one can be, and the name of its limit."""
TOGETHER: Final = 50
LARGE: Final = b"x" * 50_000
ALIASES: Final = 3_000
"""Clients with one of a topic of 60,000 bytes; together they would take 171 MiB."""
PARTS: Final = 2_000
"""Of packets; together they would take 114 MiB."""


NODE_BYTES: Final = CONTAINER_BYTES * 3 // 4
"""What the embedded Valkey leaves of it."""


@pytest.fixture
def container() -> Iterator[Path | None]:
    folder = made()
    yield folder
    if folder is None:
        return
    eventually(lambda: not (folder / "cgroup.procs").read_text(), "it is empty")
    folder.rmdir()


def made() -> Path | None:
    name = f"flockmq-test-{uuid.uuid4().hex[:8]}"
    for place, limit in PLACES.items():
        folder = Path(place) / name
        with suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                (folder / limit).write_text(str(CONTAINER_BYTES))
                return folder
            folder.rmdir()
    return None


@pytest.fixture
def node(container: Path | None, tmp_path: Path) -> Iterator[Node]:
    """Believes its clients' user names, so that they have quotas."""
    commands = Commands(forks=False)
    environment = {"FLOCKMQ_MQTT__CLIENT_ID_BINDING": "user", "FLOCKMQ_AUTHENTICATION__ALLOW_ANONYMOUS": "true"}
    if container is None:
        environment["FLOCKMQ_NODE__MAX_MEMORY"] = str(NODE_BYTES)
    try:
        yield Node("n", *commands.start_node("--data-dir", str(tmp_path), environment=environment, cgroup=container))
    finally:
        commands.end_all()


def eve(stack: ExitStack, node: Node, name: str, *properties: tuple[int, int], clean: bool = True) -> Wire:
    return let_in(stack, node, name, b"eve", *properties, clean=clean)


def newcomer(stack: ExitStack, node: Node) -> Wire:
    """Another user's client."""
    return let_in(stack, node, "other", b"other")


def let_in(
    stack: ExitStack, node: Node, name: str, user: bytes, *properties: tuple[int, int], clean: bool = True
) -> Wire:
    wire = stack.enter_context(Wire(node.mqtt, V5))
    wire.send(connect(V5, name, user_name=user, clean=clean, properties=properties))
    wire.expect(CONNACK)
    return wire


def published(wire: Wire, topic: str, payload: bytes, *, retain: bool = False) -> list[int]:
    """Publish TOGETHER messages; gives the reasons."""
    wire.send(
        *(publish(V5, topic.format(at), payload, qos=1, packet_id=at + 1, retain=retain) for at in range(TOGETHER))
    )
    return [wire.expect(PUBACK).reason for _ in range(TOGETHER)]


def ping(wire: Wire) -> None:
    wire.send(packet(PINGREQ << 4))
    wire.expect(PINGRESP)


def peak_bytes(node: Node) -> int:
    """The most that its processes had in memory, added up."""
    peak = 0
    for pid in node.command.pids():
        with suppress(OSError):  # a child of Valkey that has ended
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak += int(line.split()[1]) * 1024
    return peak


def test_a_user_that_takes_all_of_its_default_quotas_does_not_fill_the_container(node: Node) -> None:
    with ExitStack() as stack:
        wire = eve(stack, node, "eve")
        for topic in ("r/{}/{{}}", "$delayed/99999/d/{}/{{}}"):
            for number in range(CONTAINER_BYTES // len(LARGE) // TOGETHER):
                if REFUSED in published(wire, topic.format(number), LARGE, retain=True):
                    break
            else:
                pytest.fail("everything was taken")
        away = eve(stack, node, "away", (SESSION_EXPIRY, 3600), clean=False)
        away.send(subscribe(V5, 1, ("q/#", 1)))
        away.expect(SUBACK)
        away.socket.close()
        for _ in range(200):
            published(wire, "q/{}", b"x" * 2000)
        reasons: list[int] = []
        while REFUSED not in reasons:
            filters = [(f"f/{len(reasons)}/{at}/+", 1) for at in range(1000)]
            wire.send(subscribe(V5, 1, *filters))
            reasons += wire.expect(SUBACK).reasons
        shown = node.get("/api/v5/alarms")
        assert [alarm["name"] for alarm in shown] == ["user-over-quota/eve"]
        ping(wire)
    assert peak_bytes(node) < CONTAINER_BYTES * 3 // 4
    assert node.metric("flockmq_node_memory_max_bytes") < CONTAINER_BYTES


def test_clients_that_read_nothing_are_disconnected_before_they_fill_it(node: Node) -> None:
    with ExitStack() as stack:
        readers = [eve(stack, node, f"slow-{number}", (RECEIVE_MAXIMUM, 65_535)) for number in range(100)]
        for number, reader in enumerate(readers):
            reader.send(subscribe(V5, 1, (f"s/{number}/#", 1)))
            reader.expect(SUBACK)
        decent = eve(stack, node, "decent")
        publishers = [eve(stack, node, f"p-{number}") for number in range(len(readers))]
        for _ in range(2):
            for number, publisher in enumerate(publishers):
                publisher.send(
                    *(publish(V5, f"s/{number}/{at}", LARGE, qos=1, packet_id=at + 1) for at in range(TOGETHER))
                )
        eventually(lambda: node.metric("flockmq_disconnects_total") > 0, "some are disconnected")
        ping(decent)
    eventually(lambda: node.metric("flockmq_connections") == 0, "all have left")
    assert peak_bytes(node) < CONTAINER_BYTES


def test_packets_that_never_become_whole_fill_neither_the_container_nor_what_others_need(node: Node) -> None:
    """Of each so much comes that it needs no second read."""
    part = publish(V5, "p", bytes(900_000))[:60_000]
    with ExitStack() as stack:
        for number in range(PARTS):
            eve(stack, node, f"eve-{number}").send(part)
        other = newcomer(stack, node)
        other.send(publish(V5, "o", bytes(900_000), qos=1, packet_id=1))
        assert other.expect(PUBACK).packet_id == 1
        assert peak_bytes(node) < CONTAINER_BYTES * 3 // 4


def test_what_connections_keep_for_their_clients_does_not_fill_the_container(node: Node) -> None:
    """As long as there is room each may have its aliases."""
    alias = publish(V5, b"a" * 60_000, properties=((TOPIC_ALIAS, 1),))
    with ExitStack() as stack:
        for number in range(ALIASES):
            eve(stack, node, f"eve-{number}").send(alias)
        ping(newcomer(stack, node))
        assert peak_bytes(node) < CONTAINER_BYTES * 3 // 4
