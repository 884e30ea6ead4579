"""New subscriptions get what is retained: all of it, as fast as their client reads, and nothing once they are gone."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.bounds import RETAINED_FEED_TOPICS, SINK_CONGESTED_BYTES, SLOT_WORK_MAX_S
from flockmq.clock import SYSTEM, Clock
from flockmq.mqtt import encode
from flockmq.protocol.channel import CONNECTED
from flockmq.publishing.retained_feed import RetainedFeed, RetainedGiving, RetainedSender, of_row
from flockmq.rlog.schema import RetainedMessage
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, Port, publish

PATIENCE_S = 30


class Told(RetainedGiving):
    """To sessions that end with their connections. `through`: filters of those that got all."""

    def __init__(self, router: Router, through: list[bytes]) -> None:
        super().__init__(router)
        self._through = through

    def finished(self, subscription: Subscription) -> None:
        self._through.append(subscription.filter)


class Fed(Port):
    """A node whose feeds are real; its log is caught up when `caught_up` is set."""

    def __init__(self, limits: Limits, clock: Clock = SYSTEM) -> None:
        super().__init__()
        self.node = Node(limits)
        self.node.port = self.node.serving(self)
        self.table = RetainedFeed()
        self.saw_all = True
        self.caught_up = asyncio.Event()
        self.caught_up.set()
        self.through: list[bytes] = []
        self.in_vain = 0
        self.feeds = RetainedSender(
            self.table, Told(self.node.router, self.through), self.catch_up, self.node.turn, clock
        )

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.feeds.start(subscriptions, self.saw_all)

    async def catch_up(self) -> bool:
        await self.caught_up.wait()
        self.in_vain -= 1
        return self.in_vain < 0

    def hold_back(self) -> None:
        """The log is away: what is retained isn't known to be all there until `caught_up`."""
        self.saw_all = False
        self.caught_up.clear()

    def retain_many(self, count: int, payload: bytes = b"x", qos: int = 1) -> None:
        for number in range(count):
            self.table.put(b"r/%05d" % number, RetainedMessage(payload, qos, b"", 4), None)

    async def read(self, client: Client) -> list[bytes]:
        """Read and acknowledge until the feed is through; the topics, in order."""
        topics = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                packets = [packet for packet in client.packets() if packet[0] >> 4 == 3]
                acknowledgements = b""
                for packet in packets:
                    at = packet.index(b"r/")
                    topics.append(packet[at : at + 7])
                    if packet[0] & 2:
                        acknowledgements += b"\x40\x02" + packet[at + 7 : at + 9]
                self.node.feed(client, b"")
                if acknowledgements:
                    client.feed(acknowledgements)
                    self.node.turn()
                elif not packets and not len(self.feeds):
                    return topics
                await asyncio.sleep(0)


@pytest.fixture
async def fed() -> Fed:
    return Fed(Limits())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("count", "payload_bytes"), [(3000, 1), (60, 1_000_000)])
async def test_a_new_subscription_gets_all_of_it_once(fed: Fed, qos: int, count: int, payload_bytes: int) -> None:
    fed.retain_many(count, b"x" * payload_bytes)
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", qos))
    assert fed.through == []
    assert await fed.read(client) == [b"r/%05d" % number for number in range(count)]
    assert client.state == CONNECTED
    assert fed.through == [b"r/#"]


async def test_what_is_retained_comes_when_the_log_is_back_however_often_it_was_asked_in_vain(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flockmq.publishing.retained_feed.RETAINED_BACK_S", 0.0)
    fed.hold_back()
    fed.in_vain = 2
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    fed.caught_up.set()
    async with asyncio.timeout(PATIENCE_S):
        while fed.in_vain > 0:  # noqa: ASYNC110 - it asks by itself
            await asyncio.sleep(0)
    fed.retain_many(3)
    assert await fed.read(client) == [b"r/%05d" % number for number in range(3)]
    assert fed.through == [b"r/#"]


async def test_nobody_asks_the_log_for_a_subscription_that_is_gone(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.publishing.retained_feed.RETAINED_BACK_S", 0.0)
    fed.hold_back()
    fed.in_vain = 1 << 30
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    fed.caught_up.set()
    client.lost()
    async with asyncio.timeout(PATIENCE_S):
        while len(fed.feeds):  # noqa: ASYNC110 - it gives up by itself
            await asyncio.sleep(0)


class Slow:
    """A clock by which each look takes a whole slice: so an iteration has time for one step."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += SLOT_WORK_MAX_S
        return self.now_s


async def test_an_iteration_sends_a_slice_however_many_clients_subscribe() -> None:
    fed = Fed(Limits(), Clock(Slow().monotonic, SYSTEM.wall))
    fed.retain_many(2 * RETAINED_FEED_TOPICS, qos=0)
    clients = [fed.node.client(f"c{number}") for number in range(20)]
    for client in clients:
        fed.node.subscribe(client, ("r/#", 0))
    sent = []
    while len(fed.feeds):
        await asyncio.sleep(0)
        sent.append(sum(len(client.packets()) for client in clients))
    assert max(sent) == RETAINED_FEED_TOPICS, "all clients got that in each iteration"
    assert sum(sent) == len(clients) * 2 * RETAINED_FEED_TOPICS


@pytest.mark.parametrize("max_mqueue_len", [0, 1, 10])
async def test_a_short_queue_is_no_obstacle(max_mqueue_len: int) -> None:
    fed = Fed(Limits(max_inflight=2, max_mqueue_len=max_mqueue_len))
    fed.retain_many(20)
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/+", 1))
    assert len(await fed.read(client)) == 20
    assert client.state == CONNECTED


async def test_a_client_that_does_not_read_keeps_little_waiting(fed: Fed) -> None:
    fed.retain_many(100, b"x" * 100_000, qos=0)
    client = fed.node.client("c")
    client.stuck = True
    fed.node.subscribe(client, ("r/#", 0))
    await turns(100)
    assert 0 < client.out_bytes < SINK_CONGESTED_BYTES
    client.stuck = False
    client.flush()
    assert len(await fed.read(client)) == 100


@pytest.mark.parametrize("end", ["lost", "unsubscribed", "replaced"])
async def test_a_subscription_that_is_gone_gets_nothing(fed: Fed, end: str) -> None:
    fed.retain_many(10)
    client = fed.node.client("c")
    fed.hold_back()
    fed.node.subscribe(client, ("r/#", 1))
    await asyncio.sleep(0)
    if end == "lost":
        client.lost()
    elif end == "unsubscribed":
        fed.node.feed(client, encode.unsubscribe(4, 1, [b"r/#"]))
    else:
        fed.node.subscribe(client, ("r/#", 0))
    fed.caught_up.set()
    topics = await fed.read(client)
    assert len(topics) == (10 if end == "replaced" else 0)
    assert client.out == []


@pytest.mark.parametrize("held_back", [False, True])
@pytest.mark.parametrize("retain_handling", [1, 2])
async def test_MQTT_3_8_4_4_a_subscription_that_replaces_one_gets_what_that_had_to_get(
    fed: Fed, retain_handling: int, held_back: bool
) -> None:
    fed.retain_many(10, b"x" * 500_000)
    client = fed.node.client("c", 5)
    client.stuck = True
    if held_back:
        fed.hold_back()
    fed.node.subscribe(client, ("r/#", 0))
    await turns(100)
    fed.node.subscribe(client, ("r/#", 1 | retain_handling << 4))
    fed.caught_up.set()
    client.stuck = False
    client.flush()
    assert await fed.read(client) == [b"r/%05d" % number for number in range(10)]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("retain_handling", [0, 1])
async def test_MQTT_3_8_4_4_so_does_one_that_replaces_one_whose_route_is_not_there_yet(
    fed: Fed, retain_handling: int, order: int
) -> None:
    fed.retain_many(10)
    client = fed.node.client("c", 5)
    fed.hold = True
    fed.node.subscribe(client, ("r/#", 0))
    fed.node.subscribe(client, ("r/#", 1 | retain_handling << 4))
    for done in fed.unanswered[::order]:
        done(0, True)
    assert await fed.read(client) == [b"r/%05d" % number for number in range(10)]


async def test_a_subscription_that_is_made_again_gets_nothing_that_the_one_before_had_to_get(fed: Fed) -> None:
    fed.retain_many(10)
    client = fed.node.client("c", 5)
    fed.hold_back()
    fed.node.subscribe(client, ("r/#", 1))
    fed.node.feed(client, encode.unsubscribe(5, 1, [b"r/#"]))
    fed.node.subscribe(client, ("r/#", 1 | 2 << 4))
    fed.caught_up.set()
    assert await fed.read(client) == []


async def test_what_is_deleted_before_it_is_read_is_not_sent(fed: Fed) -> None:
    fed.retain_many(10, b"x" * 500_000, qos=0)
    client = fed.node.client("c")
    client.stuck = True
    fed.node.subscribe(client, ("r/#", 0))
    await turns(100)
    assert client.out_bytes > 0
    fed.table.delete(b"r/00009", RetainedMessage(b"", 0, b"", 4))
    client.stuck = False
    client.flush()
    assert await fed.read(client) == [b"r/%05d" % number for number in range(9)]


@pytest.mark.parametrize("change", ["replaced", "deleted", "expired"])
async def test_what_changes_while_a_client_has_no_room_is_sent_as_it_is_then(change: str) -> None:
    wall_s = [1.0]
    fed = Fed(Limits(), Clock(SYSTEM.monotonic, lambda: wall_s[0]))
    for number in range(10):
        fed.table.put(b"r/%05d" % number, RetainedMessage(b"x" * 500_000, 0, b"", 4, 60_000), None)
    client = fed.node.client("c")
    client.stuck = True
    fed.node.subscribe(client, ("r/#", 0))
    await turns(100)
    sent = sum(packet[0] >> 4 == 3 for packet in client.out)
    assert 0 < sent < 10
    if change == "replaced":
        fed.retain_many(10, b"newer")
    elif change == "deleted":
        for number in range(10):
            fed.table.delete(b"r/%05d" % number, RetainedMessage(b"", 0, b"", 4))
    else:
        wall_s[0] = 61.0
    client.stuck = False
    client.flush()
    assert len(await fed.read(client)) == sent


async def test_room_that_is_gone_before_a_clients_turn_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_ROOM_MIN_S", "_ROOM_MAX_S"):
        monkeypatch.setattr(f"flockmq.publishing.retained_feed.{pause}", 0)
    fed = Fed(Limits(max_inflight=1, max_mqueue_len=1))
    fed.retain_many(3)
    client, publisher = fed.node.client("c"), fed.node.client("p")
    fed.node.subscribe(client, ("r/+", 1))
    await turns(20)
    client.feed(b"\x40\x02\0\1")
    await turns(1)
    fed.node.feed(publisher, publish(4, "r/live_", "x", qos=1, packet_id=1))
    await turns(20)
    assert client.state == CONNECTED
    assert sorted(await fed.read(client)) == [b"r/00000", b"r/00001", b"r/00002", b"r/live_"]


async def test_a_topic_that_says_that_it_was_cleared_is_not_shown(fed: Fed) -> None:
    fed.retain_many(3)
    fed.table.put(b"r/00001", RetainedMessage(b"", 1, b"", 5, 1, b"author"), None)
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    assert await fed.read(client) == [b"r/00000", b"r/00002"]
    assert fed.table.expired(2, 10) == [b"r/00001"]
    fed.table.delete(b"r/00001", RetainedMessage(b"", 1, b"", 5, 1, b"author"))
    assert fed.table.expired(2, 10) == []


async def test_what_changes_once_all_was_seen_comes_live_only(fed: Fed) -> None:
    fed.retain_many(10)
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    fed.retain_many(3, b"newer")
    assert await fed.read(client) == [b"r/%05d" % number for number in range(3, 10)]


async def test_those_who_await_something_share_what_is_noted_of_changes_and_its_bound(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flockmq.publishing.retained_feed.RETAINED_LIVE_MAX_TOPICS", 5)
    fed.hold_back()
    client = fed.node.client("c")
    for number in range(10):
        fed.node.subscribe(client, (f"elsewhere/{number}", 1))
    fed.saw_all = True
    reader = fed.node.client("d")
    fed.node.subscribe(reader, ("r/#", 1))
    fed.retain_many(20)
    assert fed.table.noted == 5
    fed.caught_up.set()
    assert await fed.read(reader) == [b"r/%05d" % number for number in range(15)], "beyond the bound it may come twice"


async def test_nothing_is_noted_while_nobody_awaits_anything(fed: Fed) -> None:
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    fed.retain_many(3)
    assert fed.table.noted == 3
    await fed.read(client)
    fed.retain_many(3)
    assert fed.table.noted == 0


async def test_what_changes_while_the_log_is_away_is_not_missed(fed: Fed) -> None:
    fed.hold_back()
    client = fed.node.client("c")
    fed.node.subscribe(client, ("r/#", 1))
    fed.retain_many(3)
    fed.caught_up.set()
    assert await fed.read(client) == [b"r/%05d" % number for number in range(3)]


async def test_many_subscribes_of_one_client_are_one_task(fed: Fed) -> None:
    fed.hold_back()
    client = fed.node.client("c")
    for number in range(100):
        fed.node.subscribe(client, (f"r/{number % 10}/#", 0))
        await asyncio.sleep(0)
    assert len(fed.feeds) == 1
    fed.caught_up.set()
    await fed.read(client)


def test_a_retained_message_tells_what_is_left_of_its_expiry_until_it_expires() -> None:
    row = RetainedMessage(b"x", 1, b"\x01\x01\x02\x00\x00\x00\x0a", 5, 20_000)
    message = of_row(b"t", row, 0, 12_500)
    assert message is not None
    assert message.expiry_s == 8
    assert message.packet == encode.publish(
        5, b"t", b"x", retain=True, encoded_properties=b"\x01\x01\x02\x00\x00\x00\x08"
    )
    assert of_row(b"t", row, 0, 20_000) is None
