"""Subscriptions that stand are judged when the rules change: of everybody that it is about, and of nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flockmq.bounds import STANDING_SLICE_CLIENTS
from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.node.subscription_reauthorization import Key, SubscriptionReauthorization
from flockmq.protocol.channel import CLOSED, CONNECTED
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, UNDECIDED
from flockmq.session_rpc.ports import FilterAuthorizer


class Connection:
    """Has subscriptions, and counts how often it is judged."""

    def __init__(self, name: bytes, *filters: bytes) -> None:
        self.name = name
        self.state = CONNECTED
        self.principal = SimpleNamespace(username=b"user of " + name)
        self.filters = list(filters)
        self.paused = 0
        self.subscribes_waiting = 0
        self.judged = 0
        self.closed = 0

    def client_id(self) -> bytes:
        return self.name

    def has_ended(self) -> bool:
        return self.state == CLOSED

    def close(self, reason: int) -> None:
        self.state = CLOSED
        self.closed = reason


class Node:
    """`verdicts` by filter; who is asked about one that has none waits in `asked`."""

    def __init__(self, *connections: Connection | None, disconnects: bool = False) -> None:
        self.channels: Any = connections
        self.verdicts: dict[bytes, int] = {b"no": DENIED, b"yes": ALLOWED, b"untold": UNDECIDED}
        self.asked: list[Callable[[int], None]] = []
        self.on_judge: Callable[[], None] = lambda: None
        self.rests = 0
        self.standing = SubscriptionReauthorization(self, lambda: disconnects, SYSTEM)

    def connections(self) -> Any:
        return self.channels

    def find(self, client_id: bytes) -> Any:
        return next((one for one in self.channels if one is not None and one.name == client_id), None)

    def must_check(self, channel: Any) -> bool:
        return bool(channel.filters)

    def authorize(
        self, channel: Any, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        if topic in self.verdicts:
            return self.verdicts[topic]
        self.asked.append(done)
        return ASKED

    async def rest(self) -> None:
        self.rests += 1

    async def revoke_denied(self, channel: Any, authorizer: FilterAuthorizer) -> list[bytes]:
        channel.judged += 1
        self.on_judge()
        ended = await authorizer.denied(channel, {filter: (filter, 1) for filter in channel.filters})
        channel.filters = [filter for filter in channel.filters if filter not in ended]
        return ended

    def flush_soon(self) -> None:
        """Everything is written."""

    async def changed(self, key: Key | None = None) -> None:
        self.standing.rules_changed(key)
        await self.standing.done()


@pytest.mark.parametrize("disconnects", [False, True])
async def test_what_is_denied_ends_and_what_nobody_can_say_stays(disconnects: bool) -> None:
    one, other = Connection(b"one", b"no", b"yes", b"untold"), Connection(b"other", b"yes")
    await Node(one, None, other, disconnects=disconnects).changed()
    assert one.filters == [b"yes", b"untold"]
    assert one.closed == (Reason.NOT_AUTHORIZED if disconnects else 0)
    assert (other.filters, other.closed) == ([b"yes"], 0)


async def test_each_filter_has_its_turn() -> None:
    node = Node(Connection(b"c", *(b"yes %d" % number for number in range(100))))
    node.verdicts |= {b"yes %d" % number: ALLOWED for number in range(100)}
    await node.changed()
    assert node.rests == 100


@pytest.mark.parametrize(
    ("key", "judged"),
    [(("clientid", "b"), [0, 1]), (("username", "user of a"), [1, 0]), (("all", ""), [1, 1]), (None, [1, 1])],
)
async def test_those_are_judged_whom_the_change_is_about(key: Key | None, judged: list[int]) -> None:
    connections = [Connection(b"a", b"no"), Connection(b"b", b"no")]
    await Node(*connections).changed(key)
    assert [connection.judged for connection in connections] == judged


async def test_rules_that_change_all_the_time_reach_the_last_client_too() -> None:
    last = Connection(b"last", b"yes")
    node = Node(*[None] * (3 * STANDING_SLICE_CLIENTS), last)
    for _ in range(50):
        node.standing.rules_changed(None)
        await asyncio.sleep(0)
    assert last.judged
    last.filters.append(b"no")
    await node.changed()
    assert last.filters == [b"yes"], "the last change counts"


async def test_a_service_that_takes_its_time_holds_up_nobody_else() -> None:
    slow, other = Connection(b"slow", b"asked"), Connection(b"other", b"no")
    node = Node(slow, other)
    changing = asyncio.ensure_future(node.changed())
    await asyncio.sleep(0.01)
    assert other.filters == []
    node.asked.pop()(DENIED)
    await changing
    assert slow.filters == []


async def test_one_that_cannot_be_judged_spoils_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken, other = Connection(b"broken"), Connection(b"other", b"no")
    broken.filters = [b"no"]
    node = Node(broken, other)
    node.on_judge = lambda: None if other.judged else _fail()
    await node.changed()
    assert other.filters == []
    assert "could not be authorized" in caplog.text


async def test_who_went_before_its_turn_is_not_judged() -> None:
    connection = Connection(b"c", b"no")
    node = Node(connection)
    node.standing.check_now(cast(Any, connection))
    connection.state = CLOSED
    await asyncio.sleep(0)
    assert connection.judged == 0


@pytest.mark.parametrize("waits", ["paused", "subscribes_waiting"])
async def test_who_has_a_subscribe_under_way_is_judged_again(monkeypatch: pytest.MonkeyPatch, waits: str) -> None:
    monkeypatch.setattr("flockmq.node.subscription_reauthorization.STANDING_AGAIN_S", 0.001)
    connection = Connection(b"c", b"yes")
    node = Node(connection)
    setattr(connection, waits, 1)
    node.on_judge = lambda: connection.filters.append(b"no") if connection.judged == 2 else None
    await node.changed()
    assert connection.filters == [b"yes"]


def _fail() -> None:
    raise RuntimeError("broken")
