"""What is judged goes a slice a turn, whatever clients ask for; who waits keeps the order of its packets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flockmq.auth.authorizer import Authorizer
from flockmq.auth.rules import Rules
from flockmq.bounds import JUDGING_SHARE_RULES, JUDGING_SLICE_RULES
from flockmq.config.auth_settings import AuthorizationSettings, RuleSettings
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.reason import Reason
from flockmq.node.authorization_queue import AuthorizationQueue
from flockmq.node.authorization_turns import AuthorizationTurns
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, PUBLISH, SUBSCRIBE, Principal
from unit.broker.protocol.harness import Client, Node, Port, publish

SLOW = Rules([RuleSettings(permit="deny", topics=("#",), username=f"nobody-{number}*") for number in range(400)])
"""All of them are looked at, whatever the topic."""
COST = 400 + 400 // 8
"""A judgement's: they are found, and looked at."""
TURN_MAX = 2 * JUDGING_SLICE_RULES + COST


class Judged(Port):
    """Asks rules, a slice a turn; `turns` has how many were looked at in each."""

    def __init__(self) -> None:
        super().__init__()
        self.authorizer = Authorizer(AuthorizationSettings(no_match="deny"), [SLOW])
        access = cast(Any, SimpleNamespace(authorize=self._authorize, auth=self))
        self.checks = AuthorizationTurns(access)
        self.judged_again: list[Channel] = []
        self.standing = SimpleNamespace(changes=0, check_now=self.judged_again.append)
        reactor = SimpleNamespace(soon=self._soon, failed=self._failed)
        self.authorization = AuthorizationQueue(self.checks, cast(Any, self.standing), cast(Any, reactor))
        self.node: Node
        self.turns: list[int] = []

    def _authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        return self.authorizer.check(b"", channel.principal, channel.peer, action, topic, qos, retain)

    def _soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.node.turn)

    def _failed(self, channel: Client) -> None:
        raise AssertionError

    async def until(self, is_done: Callable[[], bool]) -> None:
        """Note each turn."""
        while not is_done():
            self.turns.append(self.authorizer.looked_at - sum(self.turns))
            await asyncio.sleep(0)
        self.turns.append(self.authorizer.looked_at - sum(self.turns))


@pytest.fixture
def port() -> Judged:
    made = Judged()
    made.node = Node()
    made.node.port = made.node.serving(made)
    return made


def clients(port: Judged, count: int) -> list[Client]:
    made = [port.node.client(f"c{number}", 5) for number in range(count)]
    for client in made:
        client.set_must_authorize(True)
    return made


def much(client: Client, filters: int) -> bytes:
    wanted = [SubscribeEntry(f"{number}/x".encode(), 0) for number in range(filters)]
    return encode.subscribe(5, 1, wanted)


async def test_a_refused_subscribe_holds_no_turn(port: Judged) -> None:
    (client,) = clients(port, 1)
    filters = 100
    port.node.feed(client, much(client, filters) + encode.PINGREQ)
    await port.until(lambda: client.written.endswith(encode.PINGRESP))
    assert sum(port.turns) == filters * COST
    assert max(port.turns) <= TURN_MAX
    assert client.packets() == [encode.suback(5, 1, [Reason.NOT_AUTHORIZED] * filters), encode.PINGRESP]


async def test_many_that_are_refused_hold_no_turn_and_one_of_few_filters_waits_for_a_share_of_each(
    port: Judged,
) -> None:
    *crowd, last = clients(port, 21)
    for client in crowd:
        port.node.feed(client, much(client, 20))
    port.node.feed(last, much(last, 1))
    await port.until(lambda: bool(last.written))
    of_each = max(COST, JUDGING_SHARE_RULES)
    assert sum(port.turns) <= len(crowd) * of_each + 2 * TURN_MAX
    await port.until(lambda: all(client.written for client in crowd))
    assert max(port.turns) <= TURN_MAX


async def test_a_flood_of_refused_messages_holds_no_turn(port: Judged) -> None:
    (client,) = clients(port, 1)
    packets = b"".join(publish(5, f"{number}/x", "1", qos=1, packet_id=number) for number in range(1, 101))
    answers = port.node.feed(client, packets)
    await port.until(lambda: client.written.count(encode.pub_ack(frame.PUBACK, 5, 100, Reason.NOT_AUTHORIZED)) == 1)
    assert sum(port.turns) == 100 * COST
    assert max(port.turns) <= TURN_MAX
    answers += client.packets()
    assert [int.from_bytes(packet[2:4], "big") for packet in answers] == list(range(1, 101))


async def test_rules_that_change_amid_a_subscribe_are_asked_when_it_stands(port: Judged) -> None:
    port.authorizer = Authorizer(AuthorizationSettings(no_match="allow"), [SLOW])
    (client,) = clients(port, 1)
    port.node.feed(client, much(client, 20))
    await asyncio.sleep(0)
    port.standing.changes += 1
    assert port.judged_again == []
    await port.until(lambda: bool(client.written))
    assert port.judged_again == [client]
    client.packets()
    port.node.feed(client, much(client, 20))
    await port.until(lambda: bool(client.written))
    assert port.judged_again == [client]


async def test_who_leaves_amid_a_subscribe_is_judged_no_more(port: Judged) -> None:
    (client,) = clients(port, 1)
    port.node.feed(client, much(client, 20))
    client.lost()
    before = port.authorizer.looked_at
    for _ in range(10):
        await asyncio.sleep(0)
    assert port.authorizer.looked_at == before


async def test_of_whom_left_no_more_is_judged_though_what_it_sent_isnt_read_yet(
    port: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = 100
    (client,) = clients(port, 1)
    port.node.feed(client, much(client, filters) + publish(5, "a", "1", qos=1, packet_id=7))
    before = port.authorizer.looked_at
    monkeypatch.setattr(Client, "has_left", lambda self: True, raising=True)
    await port.until(lambda: client.written.endswith(encode.pub_ack(frame.PUBACK, 5, 7, Reason.NOT_AUTHORIZED)))
    assert port.authorizer.looked_at == before + COST, "what it published is judged"
    suback, _ = client.packets()
    judged = before // COST
    must_reauthorize = [Reason.IMPLEMENTATION_SPECIFIC_ERROR] * (filters - judged)
    assert suback == encode.suback(5, 1, [Reason.NOT_AUTHORIZED] * judged + must_reauthorize)


async def test_what_stands_is_judged_in_slices_too(port: Judged) -> None:
    (client,) = clients(port, 1)
    done = []

    async def judge() -> None:
        for number in range(20):
            await port.checks.rest()
            port.checks.authorize(client, PUBLISH, b"%d/x" % number, 0, False, lambda verdict: None)
        done.append(True)

    tasks = [asyncio.ensure_future(judge()) for _ in range(10)]
    await port.until(lambda: len(done) == 10)
    await asyncio.gather(*tasks)
    assert max(port.turns) <= TURN_MAX + 10 * COST
    assert sum(port.turns) == 200 * COST


async def test_what_is_judged_when_a_service_has_answered_goes_in_slices_too(port: Judged) -> None:
    def judge(number: int) -> bool | None:
        authorizer = port.authorizer
        return authorizer.check(b"", Principal(b"jo"), peer, SUBSCRIBE, b"%d/x" % number, 0, False) == ALLOWED

    (client,) = clients(port, 1)
    peer = client.peer
    answered = [asyncio.ensure_future(port.checks.in_turn(b"jo", partial(judge, number))) for number in range(200)]
    await port.until(lambda: all(answer.done() for answer in answered))
    assert await asyncio.gather(*answered) == [False] * 200
    assert max(port.turns) <= TURN_MAX + 10 * COST
    assert sum(port.turns) == 200 * COST


async def test_whoever_rests_may_be_cancelled(port: Judged) -> None:
    (client,) = clients(port, 1)
    port.node.feed(client, much(client, 20))
    assert port.checks.is_enough()
    resting = port.checks.rest()
    waited_for = resting.send(None)
    waited_for.cancel()
    await port.until(lambda: bool(client.written))
    resting.close()


async def test_a_waiter_is_called_once(port: Judged) -> None:
    called: list[str] = []
    for name in ("a", "b"):
        port.checks.wait(name, partial(called.append, name))
    for _ in range(5):
        await asyncio.sleep(0)
    assert called == ["a", "b"]


async def test_an_error_in_one_clients_turn_delays_nobody_for_good(port: Judged) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    called: list[str] = []
    port.checks.wait("broken", partial(called.remove, "what isn't there"))
    port.checks.wait("other", partial(called.append, "other"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert [type(error) for error in errors] == [ValueError]
    assert called == ["other"]
    assert not port.checks.is_enough()


async def test_a_user_of_many_connections_has_no_more_turns_than_another(port: Judged) -> None:
    crowd, (decent,) = clients(port, 20), [port.node.client("decent", 5)]
    decent.set_must_authorize(True)
    for client in crowd:
        client.principal = Principal(b"many")
        port.node.feed(client, much(client, 20))
    port.node.feed(decent, much(decent, 1))
    await port.until(lambda: bool(decent.written))
    assert sum(port.turns) <= 3 * TURN_MAX, "it waits for one of them"
    await port.until(lambda: all(client.written for client in crowd))
