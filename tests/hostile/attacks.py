"""Hostile clients: `python tests/hostile/attacks.py NAME PORT` attacks the broker on a loopback port until it is
killed, or for LIFE_MAX_S. It prints one line when the attack is under way.

Each is its own process, so that what it costs the attacker isn't taken for what it costs the broker's other clients.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.wire import (
    TOPIC_ALIAS,
    V5,
    V311,
    Wire,
    acknowledgement,
    connect,
    packet,
    publish,
    subscribe,
)

LIFE_MAX_S: Final = 60.0
HALF_OPEN: Final = 10_000
LORISES: Final = 1000
STRANGERS: Final = 1000
STRANGERS_PAUSE_S: Final = 0.0005
HANDSHAKE_PAUSE_S: Final = 0.02


def under_way() -> None:
    sys.stdout.write("under way\n")
    sys.stdout.flush()


def until_the_end() -> Iterator[int]:
    end = time.monotonic() + LIFE_MAX_S
    for number in itertools.count():
        if time.monotonic() > end:
            return
        yield number


def connected(port: int, name: str, version: int = V5) -> Wire:
    wire = Wire(port, version)
    wire.send(connect(version, name))
    assert wire.next() is not None
    return wire


def reads_what_comes(wire: Wire) -> bool:
    """Without waiting; False at the connection's end."""
    while select.select([wire.socket], [], [], 0)[0]:
        try:
            if not wire.socket.recv(65536):
                return False
        except OSError:
            return False
    return True


def slow_reader(port: int) -> None:
    """Subscribes to a flood in each QoS, and reads none of it; comes back when it is cut off."""
    publisher = connected(port, "flood")
    readers: list[Wire] = []
    payload = b"x" * 4096
    for number in until_the_end():
        if number % 500 == 0:
            for wire in readers:
                wire.socket.close()
            readers = [connected(port, f"slow-{qos}") for qos in (0, 1, 2)]
            for qos, wire in enumerate(readers):
                wire.send(subscribe(V5, 1, ("flood/#", qos)))
        publisher.send(
            *(publish(V5, f"flood/{at}", payload, qos=at % 2, packet_id=at + 1 if at % 2 else None) for at in range(8))
        )
        reads_what_comes(publisher)
        if number == 0:
            under_way()
        time.sleep(0.002)


def slow_loris(port: int) -> None:
    """Many connections, each a byte now and then: of a CONNECT, or of a packet that will never be whole."""
    wires = [Wire(port) for _ in range(LORISES)]
    begun = connect(V5, "loris" + "x" * 2000)
    large = b"\x30\xff\xff\x3e" + b"\x00\x01t\x00"  # of about a megabyte, which is allowed
    for number, wire in enumerate(wires):
        wire.send(begun[:3] if number % 2 else connect(V5, f"loris-{number}") + large)
    under_way()
    for number in until_the_end():
        wire = wires[number % LORISES]
        try:
            wire.send(b"x" if number % 2 else b"x" * 4000)
        except OSError:
            wire.socket.close()
            wires[number % LORISES] = Wire(port)
            wires[number % LORISES].send(begun[:3])
        time.sleep(0.0005)


def subscriptions(port: int) -> None:
    """Filters without end: wildcards in all places, levels to the limit, many in a packet; and their topics."""
    seed = random.Random(1)
    wire = connected(port, "subscriber")
    for number in until_the_end():
        filters = []
        for _ in range(50):
            levels = [seed.choice(("+", "a", "b", str(number))) for _ in range(seed.choice((2, 5, 20, 128)))]
            filters.append(("/".join(levels) + seed.choice(("", "/#")) if len(levels) < 128 else "/".join(levels), 0))
        try:
            wire.send(subscribe(V5, number % 60_000 + 1, *filters), publish(V5, "/".join("ab" * 60)))
            alive = reads_what_comes(wire)
        except OSError:
            alive = False
        if not alive:
            wire.socket.close()
            wire = connected(port, f"subscriber-{number}")
        if number == 10:
            under_way()
        time.sleep(0.01)


def topics(port: int) -> None:
    """A new topic with each message, in both QoS roads."""
    wire = connected(port, "bomber", V311)
    for number in until_the_end():
        first = number * 200
        wire.send(
            b"".join(publish(V311, f"bomb/{at}/{at * 7919}/deep/er", b"x") for at in range(first, first + 180)),
            b"".join(
                publish(V311, f"bomb/{at}", b"x", qos=1, packet_id=at % 60_000 + 1)
                for at in range(first + 180, first + 200)
            ),
        )
        reads_what_comes(wire)
        if number == 10:
            under_way()
        time.sleep(0.004)


def aliases_and_identifiers(port: int) -> None:
    """Aliases above what is allowed, QoS 2 without PUBREL, acknowledgements of nothing; comes back each time."""
    for number in until_the_end():
        wire = connected(port, f"abuser-{number % 10}")
        try:
            if number % 3 == 0:
                for alias in range(1, 200):
                    wire.send(publish(V5, f"alias/{alias}", properties=[(TOPIC_ALIAS, alias)]))
            elif number % 3 == 1:
                wire.send(*(publish(V5, "ids", b"x" * 100, qos=2, packet_id=at) for at in range(1, 2000)))
            else:
                wire.send(*(acknowledgement(kind, at) for at in range(1, 500) for kind in (4, 5, 6, 7)))
            reads_what_comes(wire)
        except OSError:
            pass
        wire.socket.close()
        if number == 5:
            under_way()
        time.sleep(0.01)


def half_open(port: int) -> None:
    """Connections that never say anything; those that the broker gives up are opened anew."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, HALF_OPEN + 500), hard))
    sockets = [socket.create_connection(("127.0.0.1", port), 10.0) for _ in range(HALF_OPEN)]
    under_way()
    for number in until_the_end():
        at = number % HALF_OPEN
        if not select.select([sockets[at]], [], [], 0)[0] if sockets[at].fileno() < 1024 else True:
            time.sleep(0.001)
            continue
        sockets[at].close()
        sockets[at] = socket.create_connection(("127.0.0.1", port), 10.0)


def strangers(port: int) -> None:
    """CONNECTs that are never whole: some claim a megabyte, some stay below 64 KiB, some come in crumbs."""
    sockets = [_stranger(port) for _ in range(STRANGERS)]
    sent = [0] * STRANGERS
    large, near = packet(0x10, bytes(1024 * 1024 - 100))[:-1], packet(0x10, bytes(65_400))[:-1]
    for number in until_the_end():
        at = number % STRANGERS
        data, most = ((large, len(large)), (near, len(near)), (near, 64))[at % 3]
        try:
            sent[at] += sockets[at].send(data[sent[at] : sent[at] + most])
            is_over = _has_ended(sockets[at])
        except BlockingIOError:
            is_over = False
        except OSError:
            is_over = True
        if is_over:
            sockets[at].close()
            sockets[at], sent[at] = _stranger(port), 0
        if number == 3 * STRANGERS:
            under_way()
        time.sleep(STRANGERS_PAUSE_S)


def tls_strangers(port: int) -> None:
    """Handshakes that are begun, each of which makes the node reserve memory, and never go on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    hello = out.read()
    sockets = [_stranger(port) for _ in range(STRANGERS)]
    for one in sockets:
        one.send(hello)
    under_way()
    for number in until_the_end():
        at = number % STRANGERS
        if not _has_ended(sockets[at]):
            time.sleep(HANDSHAKE_PAUSE_S / 100)
            continue
        sockets[at].close()
        sockets[at] = _stranger(port)
        sockets[at].send(hello)
        time.sleep(HANDSHAKE_PAUSE_S)


def tls_claimants(port: int) -> None:
    """Handshakes that stop a few bytes into the client's answer, when it has said that 128 KiB will follow."""
    sockets = [_claimant(port) for _ in range(STRANGERS)]
    under_way()
    for number in until_the_end():
        at = number % STRANGERS
        if _has_ended(sockets[at]):
            sockets[at].close()
            sockets[at] = _claimant(port)
        time.sleep(HANDSHAKE_PAUSE_S)


def _claimant(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), 10.0)
    with contextlib.suppress(OSError):  # It may be closed to make room.
        one.sendall(_hello_without_key_share())
        one.recv(10_000)  # "Hello again, with a key share": what follows isn't encrypted
        one.sendall(b"\x16\x03\x03\x00\x05" + b"\x01" + (131_000).to_bytes(3, "big") + b"\x03")
    one.setblocking(False)
    return one


def _hello_without_key_share() -> bytes:
    """A ClientHello of TLS 1.3 that the server has to ask for a key share."""
    extensions = b"".join(
        kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
        for kind, body in (
            (43, b"\x02\x03\x04"),  # supported_versions: 1.3
            (10, b"\x00\x02\x00\x1d"),  # supported_groups: x25519
            (13, b"\x00\x06\x04\x03\x08\x04\x04\x01"),  # signature_algorithms
            (51, b"\x00\x00"),  # key_share: none
        )
    )
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def _stranger(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), 10.0)
    one.setblocking(False)
    return one


def _has_ended(one: socket.socket) -> bool:
    try:
        return one.recv(10_000) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


ATTACKS: Final[dict[str, Callable[[int], None]]] = {
    attack.__name__: attack
    for attack in (
        slow_reader,
        slow_loris,
        subscriptions,
        topics,
        aliases_and_identifiers,
        half_open,
        strangers,
        tls_strangers,
        tls_claimants,
    )
}


def command(name: str, ports: dict[str, int]) -> list[str]:
    """What runs this attack on a node with these listeners."""
    return [sys.executable, __file__, name, str(ports["ssl:default" if name.startswith("tls") else "tcp:default"])]


if __name__ == "__main__":
    ATTACKS[sys.argv[1]](int(sys.argv[2]))
