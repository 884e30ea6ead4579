"""One user is in very many shared groups that match ever new topics: others' connections and nodes go on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import SESSION_EXPIRY, SUBACK, V5, Wire, connect, publish, subscribe
from hostile.decent import used_s
from integration.broker.conftest import Fleet, Node, eventually
from integration.dev.commands import Commands

GROUPS: Final = 4000
A_CLIENT: Final = 1000
"""`mqtt.max_shared_subscriptions`."""
CONNECTIONS: Final = 200
TOPICS: Final = 300
"""To match each took a time that was quadratic in the groups, and all that was read at once went in one go."""


WAIT_MAX_S: Final = 0.25
"""Of the node's processor time; it was what all messages take: 1 s."""
SUBSCRIBING_MAX_S: Final = 0.5
"""The same, of a SUBSCRIBE, which takes some ten iterations, and perhaps a garbage collection; it was what all rows of
the others take.
"""
MEMBERS: Final = 60
ROUNDS: Final = 3
ROUND_S: Final = 0.5
USERS: Final = """
[authentication]
bootstrap_file = "{folder}/users.csv"
bootstrap_type = "plain"
[[authentication.chain]]
mechanism = "password_based:built_in_database"
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Its users are `many` and `other`."""
    (tmp_path / "users.csv").write_text("user_id,password,is_superuser\nmany,x,false\nother,x,false\n")
    (tmp_path / "node.toml").write_text(USERS.format(folder=tmp_path))
    commands = Commands()
    try:
        config, data = str(tmp_path / "node.toml"), str(tmp_path / "data")
        yield Node("n", *commands.start_node("--config", config, "--data-dir", data))
    finally:
        commands.end_all()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    commands = Commands()
    made = Fleet(commands, tmp_path)
    try:
        yield made
    finally:
        commands.end_all()
        made.stop_redis()


def join_all(connected: Callable[[str], Wire]) -> None:
    """By as many clients as must."""
    for first in range(0, GROUPS, A_CLIENT):
        member = connected(f"member-{first}")
        member.send(subscribe(V5, 1, *((f"$share/{group}/many/#", 0) for group in range(first, first + A_CLIENT))))
        assert set(member.expect(SUBACK).reasons) == {0}


def test_no_node_stands_still_for_one_users_groups(fleet: Fleet) -> None:
    fleet.core("core")
    there, here = fleet.replicant("there"), fleet.replicant("here")
    with ExitStack() as stack:

        def connected(name: str, node: Node = there) -> Wire:
            wire = stack.enter_context(Wire(node.mqtt))
            wire.send(connect(V5, name))
            assert wire.next() is not None
            return wire

        hostile, other = connected("hostile", here), connected("other", here)
        join_all(connected)
        other.subscribe(("quiet", 1))
        eventually(lambda: there.metric("flockmq_shared_groups") == GROUPS, "it is in all of them")
        hostile.send(b"".join(publish(V5, f"many/{number}", b"x") for number in range(TOPICS)))
        other.publish("quiet", b"goes on")
        assert other.receive().payload == b"goes on"


def test_a_user_waits_for_one_message_of_another_users_connections(node: Node) -> None:
    with ExitStack() as stack:

        def connected(name: str, user: bytes = b"many") -> Wire:
            wire = stack.enter_context(Wire(node.mqtt))
            wire.send(connect(V5, name, user_name=user, password=b"x"))
            assert wire.next() is not None
            return wire

        other = connected("other", b"other")
        join_all(connected)
        hostile = [connected(f"hostile-{number}") for number in range(CONNECTIONS)]
        other.quiet()
        for wire in hostile:
            wire.send(publish(V5, "many/1", b"x"))
        begun_s = used_s(node.command)
        other.quiet()
        assert used_s(node.command) - begun_s < WAIT_MAX_S


def longest_subscribing_s(node: Node, other: Wire, name: str) -> float:
    """The most processor time of the node until a SUBSCRIBE is answered, for ROUND_S."""
    longest_s, until_s = 0.0, time.monotonic() + ROUND_S
    for number in itertools.count():
        begun_s = used_s(node.command)
        other.subscribe((f"{name}/{number}", 1))
        longest_s = max(longest_s, used_s(node.command) - begun_s)
        if time.monotonic() > until_s:
            break
        time.sleep(0.01)
    return longest_s


def test_who_subscribes_waits_for_a_few_rows_of_another_users_members(node: Node) -> None:
    """Those have a thousand groups each, and subscribe, end and come back together."""
    with ExitStack() as stack:

        def opened(number: int) -> Wire:
            wire = stack.enter_context(Wire(node.mqtt))
            wire.send(
                connect(
                    V5,
                    f"member-{number}",
                    user_name=b"many",
                    password=b"x",
                    clean=False,
                    properties=[(SESSION_EXPIRY, 3600)],
                )
            )
            return wire

        other = stack.enter_context(Wire(node.mqtt))
        other.send(connect(V5, "other", user_name=b"other", password=b"x"))
        assert other.next() is not None
        members = [opened(number) for number in range(MEMBERS)]
        for wire in members:
            assert wire.next() is not None
        for number, wire in enumerate(members):
            wire.send(subscribe(V5, 1, *((f"$share/g/{number}/{at}", 0) for at in range(A_CLIENT))))
        for wire in members:
            assert set(wire.expect(SUBACK).reasons) == {0}
        longest_s = 0.0
        for count in range(ROUNDS):
            for wire in members:
                wire.vanish()
            members = [opened(number) for number in range(MEMBERS)]
            longest_s = max(longest_s, longest_subscribing_s(node, other, f"{count}"))
        for wire in members:
            connack = wire.next()
            assert connack is not None
        assert longest_s < SUBSCRIBING_MAX_S
        eventually(lambda: node.metric("flockmq_shared_groups") == MEMBERS * A_CLIENT, "they are in all of them")
