"""Between the session proxies of a node and their owners: what reaches the client, what is reported, what is asked."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.bounds import STANDING_READS_MAX, SUBSCRIBES_WAITING_MAX
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.routing.shared_frames import find_deal
from flockmq.routing.sink import LAGGING, Sink
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import PUBACK, pair, settled
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.ports import FilterAuthorizer, Held
from flockmq.session_rpc.remote_sessions import RemoteSessions
from unit.broker.protocol.harness import Client, Node, Port, publish

OWNER, LATER = "core-0@1", "core-1@1"
ID = b"c"
TOKEN = 7
SESSION_REQUEST = messages.SessionRequest(4, False, 60, 32, 0, "default", b"12345678")


class Owners:
    def __init__(self) -> None:
        self.incarnation = OWNER
        self.reports: list[bytes] = []
        self.questions: list[tuple[messages.Question, Answered]] = []

    def owner(self, slot: int) -> str:
        return self.incarnation

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        assert (client_id, token) == (ID, TOKEN)
        self.reports.append(pairs)

    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        assert (client_id, token) == (ID, TOKEN)
        self.questions.append((question, answered))


class Member(Sink):
    """Keeps what comes."""

    def flush(self) -> None:
        """Nowhere."""


class WithProxies(Port):
    """A node whose clients all have their sessions at owner."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.owners = Owners()
        self.given_up: list[bytes] = []
        self.proxies = RemoteSessions(
            self.router.turn, self.flush_soon, lambda channel, filter: self.given_up.append(filter), bytes
        )
        self.proxies.owners = self.owners

    def admit(self, channel: Channel, connect: Connect) -> None:
        assert isinstance(channel.session, LocalSession)
        proxy = self.proxies.add(channel, channel.session, TOKEN, SESSION_REQUEST)
        channel.admitted(connect, TOKEN, proxy, False)

    def remember(self, inbound: PendingPublish) -> None:
        self.proxies.remember(inbound, TOKEN)

    def connected(self) -> Client:
        return self.node.client("c", 4, Connect(4, ID, clean_start=False))

    def heard(self, client: Client, packets: bytes, incarnation: str = OWNER, token: int = TOKEN) -> list[bytes]:
        self.proxies.delivered(incarnation, token, packets)
        self.node.turn()
        return client.packets()


@pytest.fixture
def port() -> WithProxies:
    return WithProxies()


FIRST = publish(4, "a", "1", qos=1, packet_id=1)


def test_what_its_owner_sends_reaches_the_client_once(port: WithProxies) -> None:
    client = port.connected()
    assert port.heard(client, FIRST) == [FIRST]
    assert port.heard(client, FIRST) == []
    assert port.heard(client, publish(4, "a", "2", qos=1, packet_id=2), LATER) == [], "not its owner"
    assert port.heard(client, publish(4, "a", "2", qos=1, packet_id=2), token=TOKEN - 1) == []


def test_reports_go_once_a_turn_until_they_are_settled(port: WithProxies) -> None:
    client = port.connected()
    port.heard(client, FIRST + publish(4, "a", "2", qos=1, packet_id=2))
    port.node.feed(client, encode.pub_ack(4, 4, 1) + encode.pub_ack(4, 4, 2))
    assert port.owners.reports == [pair(PUBACK, 1) + pair(PUBACK, 2)]
    assert port.proxies.unsettled(TOKEN) == pair(PUBACK, 1) + pair(PUBACK, 2)
    port.heard(client, settled(PUBACK, 1))
    assert port.proxies.unsettled(TOKEN) == pair(PUBACK, 2)
    port.node.turn()
    assert len(port.owners.reports) == 1, "who asked for all that isn't settled has it"


def test_what_was_not_reported_yet_is_when_the_connection_goes(port: WithProxies) -> None:
    client = port.connected()
    port.heard(client, FIRST)
    client.feed(encode.pub_ack(4, 4, 1))
    port.proxies.remove(TOKEN)
    assert port.owners.reports == [pair(PUBACK, 1)]
    assert port.proxies.unsettled(TOKEN) == b""
    assert len(port.proxies) == 0
    assert port.proxies.request(TOKEN) is None
    assert port.heard(client, publish(4, "a", "2", qos=1, packet_id=2)) == []


def test_a_SUBSCRIBE_is_answered_as_its_owner_says(port: WithProxies) -> None:
    client = port.connected()
    asking = encode.subscribe(4, 5, [Request(b"a", 1), Request(b"b", 2)])
    assert port.node.feed(client, asking) == []
    ((question, answered),) = port.owners.questions
    assert question == messages.SubscribeQuestion(
        [messages.WantedSubscription(b"a", 1), messages.WantedSubscription(b"b", 2)], b"", bytes(8)
    )
    answered(messages.encode([1, 0x80]))
    port.node.turn()
    assert client.packets() == [encode.suback(4, 5, [1, 0x80])]


def test_an_UNSUBSCRIBE_is_answered_as_its_owner_says(port: WithProxies) -> None:
    client = port.connected()
    assert port.node.feed(client, encode.unsubscribe(4, 5, [b"a", b"b"])) == []
    ((question, answered),) = port.owners.questions
    assert isinstance(question, messages.UnsubscribeQuestion)
    assert (question.filters, len(question.nonce)) == ([b"a", b"b"], 8)
    answered(messages.encode([0, 0x11]))
    port.node.turn()
    assert client.packets() == [encode.unsuback(4, 5, [0, 0x11])]
    assert port.given_up == [b"a"]


def test_a_client_that_asks_its_owner_too_much_at_once_is_not_read(port: WithProxies) -> None:
    client = port.connected()
    for packet_id in range(1, SUBSCRIBES_WAITING_MAX + 10):
        port.node.feed(client, encode.unsubscribe(4, packet_id, [b"a"]))
    assert len(port.owners.questions) == SUBSCRIBES_WAITING_MAX
    port.owners.questions[0][1](messages.encode([0]))
    assert client.paused == 0


def test_a_client_that_does_not_read_gets_no_more_of_QoS_0(port: WithProxies) -> None:
    client = port.connected()
    client.flow = LAGGING
    qos0 = publish(4, "a", "0")
    assert port.heard(client, qos0 + FIRST + qos0) == [FIRST]
    assert port.node.router.counters.dropped_slow_reader == 2


def test_a_QoS_2_message_is_published_under_the_origin_that_its_owner_says(port: WithProxies) -> None:
    client = port.connected()
    assert port.node.feed(client, publish(4, "a", "x", qos=2, packet_id=9)) == []
    ((question, answered),) = port.owners.questions
    assert question == messages.ReceiveQuestion(9)
    answered(messages.encode(bytes(range(16))))
    port.node.turn()
    assert client.packets() == [encode.pub_ack(5, 4, 9)]


def test_of_a_QoS_2_message_its_owner_is_told_who_gets_it_of_shared_subscriptions(port: WithProxies) -> None:
    shared = port.node.router.shared
    shared.me = "n@1"
    shared.keeps_deals = lambda: True
    member = Member(port.node.router.turn, 4)
    port.node.router.add(Subscription(LocalSession(member, b"m", Limits(), 32), b"$share/g/a", 2))
    client = port.connected()
    port.node.feed(client, publish(4, "a", "x", qos=2, packet_id=9))
    ((question, answered),) = port.owners.questions
    assert isinstance(question, messages.ReceiveQuestion)
    deal = find_deal(question.deals, b"$share/g/a")
    assert deal is not None
    assert deal.owner == "n@1"
    for _ in range(2):
        answered(messages.encode(bytes(range(16)) + question.deals))
        port.node.turn()
        assert client.packets() == [encode.pub_ack(5, 4, 9)]
        client.lost()
        port.proxies.remove(TOKEN)
        client = port.connected()
        port.node.feed(client, publish(4, "a", "x", qos=2, packet_id=9))
        _, answered = port.owners.questions[-1]
    assert [packet[-1:] for packet in member.out] == [b"x"]


def test_a_client_that_went_meanwhile_is_told_nothing(port: WithProxies) -> None:
    client = port.connected()
    port.node.feed(client, encode.subscribe(4, 5, [Request(b"a", 1)]))
    port.node.feed(client, encode.unsubscribe(4, 6, [b"a"]))
    port.node.feed(client, publish(4, "a", "x", qos=2, packet_id=9))
    client.lost()
    for _, answered in port.owners.questions:
        answered(b"")
    port.node.turn()
    assert client.packets() == []
    assert port.given_up == []


class Denies(FilterAuthorizer):
    def __init__(self, *filters: bytes) -> None:
        self.filters = filters

    async def denied(self, channel: Channel, held: dict[bytes, Held]) -> list[bytes]:
        return [filter for filter in held if filter in self.filters]


TURNS = 9
"""Of the event loop, until the next question is asked."""


class Checked:
    """A client whose rules changed, and its owner, which has `filters`, and sends one on a page."""

    def __init__(self, port: WithProxies, *filters: bytes) -> None:
        self.filters = list(filters)
        self.pages: list[int] = []
        self.ended: list[tuple[list[bytes], bytes]] = []
        """The filters, and by which rules all are authorized then."""
        self._port = port
        self._client = port.connected()

    def check(self, *denied: bytes) -> asyncio.Future[list[bytes]]:
        authorized = self._port.proxies.authorize_subscriptions(
            self._client, TOKEN, Denies(*denied), lambda: b"rules 01"
        )
        return asyncio.ensure_future(authorized)

    async def answer(self) -> None:
        """The owner answers the first question."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        question, answered = self._port.owners.questions.pop(0)
        if isinstance(question, messages.SubscriptionsQuestion):
            self.pages.append(question.after)
            end = question.after + 1
            page = [(filter, filter, 1) for filter in self.filters[question.after : end]]
            answered(messages.encode((page, end if end < len(self.filters) else 0)))
        else:
            assert isinstance(question, messages.ReauthorizedQuestion)
            self.ended.append((question.denied, question.rules))
            self.filters = [filter for filter in self.filters if filter not in question.denied]
            answered(messages.encode([Reason.SUCCESS] * len(question.denied)))


async def test_what_is_denied_ends_though_the_next_owner_has_it_at_another_place(port: WithProxies) -> None:
    client = Checked(port, b"a", b"b")
    check = client.check(b"a", b"b")
    await client.answer()
    port.proxies.unsettled(TOKEN)
    client.filters.reverse()
    for _ in range(4):
        await client.answer()
    assert sorted(await check) == [b"a", b"b"]
    assert client.pages == [0, 1, 0, 1]


async def test_what_is_denied_ends_though_another_check_shifts_it_meanwhile(port: WithProxies) -> None:
    client = Checked(port, b"a", b"b")
    former = client.check(b"a")
    await client.answer()
    check = client.check(b"a", b"b")
    for _ in range(3):
        await client.answer()
    assert await former == [b"a"]
    for _ in range(3):
        await client.answer()
    assert await check == [b"b"]
    assert client.filters == []


async def test_who_changes_subscriptions_whenever_they_are_read_is_checked_again_at_the_next_CONNECT(
    port: WithProxies,
) -> None:
    client = Checked(port, b"a", b"b")
    check = client.check(b"a", b"b")
    for _ in range(STANDING_READS_MAX):
        await client.answer()
        port.proxies.unsettled(TOKEN)
        await client.answer()
    await client.answer()
    assert await check == [b"a", b"b"]
    assert client.ended == [([b"a", b"b"], b"")]
