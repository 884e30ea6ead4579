"""What rules and plugins make of clients, subscriptions and messages; and that nothing else leaves the fast road."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from flockmq import plugins as api
from flockmq.bounds import PLUGIN_FAILURES_MAX
from flockmq.config.feature_settings import AutoSubscribeSettings, RewriteSettings
from flockmq.errors import ConfigError
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import unwrap
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.plugins.dispatch import Record
from flockmq.plugins.loading import Plugins
from flockmq.plugins.points import A, E, Point
from flockmq.protocol import connect as opening
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.protocol.client import ANONYMOUS
from flockmq.session.local_session import LocalSession
from unit.broker.protocol.harness import Client, Node, Port, publish

PUBLISH_RULE = RewriteSettings(action="publish", source_topic="old/#", re="^old/(.+)$", dest_topic="new/$1")
SUBSCRIBE_RULE = RewriteSettings(action="subscribe", source_topic="old/#", re="^old/(.+)$", dest_topic="new/$1")
OWN_RULE = RewriteSettings(source_topic="up/#", re="^up/(.+)$", dest_topic="of/${clientid}/${username}/$1")


class Hooked(Port):
    """A node whose clients meet rules and one plugin, as `node.Node` has them meet."""

    def __init__(self, rewrite: Sequence[RewriteSettings] = (), auto: Sequence[AutoSubscribeSettings] = ()) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.router = self.node.router
        self.plugin_hooks = self.hooks = PluginHooks(self.router, Plugins(()), rewrite, auto)
        self.plugin = self.plugin_hooks.hooks.plugins["p"] = Record("p", "1")

    def hook(
        self, point: Point[E, A], call: Callable[[E], A], *, priority: int = 0, filters: tuple[bytes, ...] = ()
    ) -> None:
        self.plugin_hooks.hooks.add(self.plugin, point, call, priority, point.required, filters)

    def admit(self, channel: Channel, connect: Connect) -> None:
        refusal = self.plugin_hooks.connecting(channel, connect)
        known = self.plugin_hooks.authenticate(channel, connect) if refusal == Reason.SUCCESS else refusal
        if isinstance(known, int):
            channel.refuse(known)
            return
        channel.principal = ANONYMOUS if known is None else known
        channel.set_must_authorize(self.plugin_hooks.must_authorize())
        assert channel.session is not None
        channel.admitted(connect, 7, channel.session, False)
        self.plugin_hooks.connected(channel, channel.session, False)

    def refused(self, channel: Channel, reason: int) -> None:
        self.plugin_hooks.refused(channel, reason)

    def gone(self, channel: Channel, session: LocalSession, will: opening.Will | None) -> None:
        super().gone(channel, session, self.plugin_hooks.leaving(channel, will))
        self.plugin_hooks.disconnected(channel)

    def session_ended(self, session: LocalSession) -> None:
        self.plugin_hooks.session_ended(session.client_id)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        verdict = self.plugin_hooks.authorize(channel, action, *unwrap(topic), qos, retain)
        return super().authorize(channel, action, topic, qos, retain, done) if verdict is None else verdict

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        reasons = super().unsubscribe(channel, session, filters)
        for filter, reason in zip(filters, reasons, strict=True):
            if reason == Reason.SUCCESS:
                self.plugin_hooks.unsubscribed(channel, filter)
        return reasons

    def received(self, client: Client) -> list[bytes]:
        self.node.turn()
        return client.packets()


def a_client(hooked: Hooked, client_id: str, version: int = 5, user: bytes | None = None) -> Client:
    return hooked.node.client(client_id, version, Connect(version, client_id.encode(), user_name=user))


# --- topic rewrite --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_to_the_topic_that_its_rule_says(version: int, qos: int) -> None:
    hooked = Hooked([PUBLISH_RULE])
    node = hooked.node
    publisher, subscriber = a_client(hooked, "p", version), a_client(hooked, "s", version)
    node.subscribe(subscriber, ("#", qos))
    for number in (1, 2):  # nothing is remembered of the first that would let the second pass
        node.feed(publisher, publish(version, "old/x", "hello", qos=qos, packet_id=number if qos else 0))
        assert node.feed(subscriber, b"") == [
            publish(version, "new/x", "hello", qos=qos, packet_id=number if qos else 0)
        ]


def test_other_topics_stay_on_the_fast_road() -> None:
    hooked = Hooked([PUBLISH_RULE])
    publisher = a_client(hooked, "p")
    hooked.node.feed(publisher, publish(5, "other", "1") + publish(5, "old/x", "1"))
    (head,) = hooked.router.heads5
    assert b"other" in head


def test_without_rules_and_handlers_nothing_is_intercepted() -> None:
    hooked = Hooked()
    assert len(hooked.router.intercepts) == 0
    assert not hooked.router.intercepts_subscriptions


def test_a_subscription_is_to_what_its_rule_says_and_is_dropped_by_what_the_client_said() -> None:
    hooked = Hooked([SUBSCRIBE_RULE])
    node = hooked.node
    client = a_client(hooked, "c")
    assert node.subscribe(client, ("old/+", 1)) == [encode.suback(5, 1, [1])]
    assert node.feed(client, publish(5, "new/x", "1")) == [publish(5, "new/x", "1")]
    assert node.feed(client, publish(5, "old/x", "1")) == []
    assert node.feed(client, encode.unsubscribe(5, 2, [b"old/+"])) == [encode.unsuback(5, 2, [0])]
    assert node.feed(client, publish(5, "new/x", "1")) == []


def test_rules_know_the_client() -> None:
    hooked = Hooked([OWN_RULE])
    hooked.hook(api.CLIENT_AUTHENTICATE, lambda event: api.Allow(username="acme"))
    client = a_client(hooked, "dev", user=b"whatever")
    hooked.node.subscribe(client, ("of/dev/acme/#", 0))
    assert hooked.node.feed(client, publish(5, "up/temp", "1")) == [publish(5, "of/dev/acme/temp", "1")]


@pytest.mark.parametrize(("version", "said"), [(5, Reason.TOPIC_NAME_INVALID), (4, Reason.SUCCESS)])
def test_a_message_that_a_rule_cannot_place_goes_nowhere(version: int, said: int) -> None:
    hooked = Hooked([OWN_RULE])
    client = a_client(hooked, "a/b", version)
    hooked.node.subscribe(client, ("#", 0))
    answer = hooked.node.feed(client, publish(version, "up/temp", "1", qos=1, packet_id=7))
    assert answer == [encode.pub_ack(frame.PUBACK, version, 7, said)]


def test_a_subscription_that_a_rule_cannot_place_is_refused() -> None:
    hooked = Hooked([OWN_RULE])
    client = a_client(hooked, "a/b")
    assert hooked.node.subscribe(client, ("up/#", 0)) == [encode.suback(5, 1, [Reason.NOT_AUTHORIZED])]


def test_no_rule_leads_below_dollar_sys() -> None:
    hooked = Hooked([RewriteSettings(source_topic="x", re="x", dest_topic="$SYS/broker/uptime")])
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("$SYS/#", 0))
    answer = hooked.node.feed(client, publish(5, "x", "1", qos=1, packet_id=7))
    assert answer == [encode.pub_ack(frame.PUBACK, 5, 7, Reason.TOPIC_NAME_INVALID)]


def a_mortal(hooked: Hooked, topic: str) -> Client:
    will = ConnectWill(topic.encode(), b"gone", 1, False, None)
    return hooked.node.client("m", 5, Connect(5, b"m", will=will))


def test_a_will_is_rewritten_and_none_is_left_below_dollar_sys() -> None:
    hooked = Hooked([PUBLISH_RULE])
    a_mortal(hooked, "old/m").lost()
    a_mortal(hooked, "$SYS/broker/uptime").lost()
    a_mortal(hooked, "plain").lost()
    assert [message.topic for message in hooked.published] == [b"new/m", b"plain"]


MOUNT = RewriteSettings(source_topic="#", re="^(.+)$", dest_topic="tenants/${clientid}/$1")


@pytest.mark.parametrize("prefix", ["$exclusive/", "$share/g/"])
def test_a_client_of_a_mount_hears_only_what_is_there(prefix: str) -> None:
    hooked = Hooked([MOUNT])
    tenant, victim = a_client(hooked, "tenant"), a_client(hooked, "victim")
    assert hooked.node.subscribe(tenant, (f"{prefix}#", 0)) == [encode.suback(5, 1, [0])]
    hooked.node.feed(victim, publish(5, "secret", "1"))
    assert hooked.received(tenant) == []
    assert hooked.node.feed(tenant, encode.unsubscribe(5, 2, [f"{prefix}#".encode()])) == [encode.unsuback(5, 2, [0])]


def test_a_delayed_message_is_rewritten_and_handled_when_it_is_taken() -> None:
    hooked = Hooked([MOUNT])
    hooked.hold = True
    seen: list[tuple[str, str]] = []

    def shout(event: api.Message) -> api.Message:
        seen.append((event.prefix, event.topic))
        return msgspec.structs.replace(event, payload=event.payload.upper(), topic=f"{event.topic}/loud")

    hooked.hook(api.MESSAGE_PUBLISH, shout, filters=(b"tenants/+/x",))
    hooked.node.feed(a_client(hooked, "c"), publish(5, "$delayed/5/x", "hello", qos=1, packet_id=1))
    (inbound,) = hooked.inbound
    assert seen == [("$delayed/5/", "tenants/c/x")]
    assert (inbound.message.topic, inbound.message.payload()) == (b"$delayed/5/tenants/c/x/loud", b"HELLO")


def test_a_delayed_message_can_be_denied() -> None:
    hooked = Hooked()
    hooked.hook(api.MESSAGE_PUBLISH, lambda event: api.Deny(), filters=(b"x",))
    answer = hooked.node.feed(a_client(hooked, "c"), publish(5, "$delayed/5/x", "hello", qos=1, packet_id=1))
    assert answer == [encode.pub_ack(frame.PUBACK, 5, 1, Reason.NOT_AUTHORIZED)]


def test_a_name_that_begins_with_dollar_is_for_rules_and_handlers_only() -> None:
    """What a rule or a handler takes messages for is a feature; they go nowhere unless it says another topic."""
    hooked = Hooked([RewriteSettings(source_topic="$thing/#", re="^.thing/(.+)$", dest_topic="things/$1")])
    hooked.hook(api.MESSAGE_PUBLISH, lambda event: None, filters=(b"$seen/#", b"$SYS/#"))
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("#", 0), ("$seen/#", 0), ("$else/#", 0))
    assert hooked.node.feed(client, publish(5, "$thing/x", "1")) == [publish(5, "things/x", "1")]
    refusals = [("$seen/x", Reason.TOPIC_NAME_INVALID), ("$else/x", Reason.TOPIC_NAME_INVALID)]
    for topic, reason in [*refusals, ("$SYS/x", Reason.NOT_AUTHORIZED)]:
        answer = hooked.node.feed(client, publish(5, topic, "1", qos=1, packet_id=7))
        assert answer == [encode.pub_ack(frame.PUBACK, 5, 7, reason)]
    assert hooked.plugin.calls == 1


def test_plugins_see_what_stands_behind_prefixes() -> None:
    hooked = Hooked()
    told: list[tuple[str, str, str]] = []

    def note(event: api.Access | api.Subscription | api.Unsubscription) -> None:
        told.append(
            (type(event).__name__, event.prefix, event.topic if isinstance(event, api.Access) else event.filter)
        )

    def change(event: api.Subscription) -> api.Subscription:
        note(event)
        return msgspec.structs.replace(event, filter=f"c/{event.filter}")

    hooked.hook(api.CLIENT_AUTHORIZE, note)
    hooked.hook(api.CLIENT_SUBSCRIBE, change)
    hooked.hook(api.SESSION_SUBSCRIBED, note)
    hooked.hook(api.CLIENT_UNSUBSCRIBE, note)
    hooked.hook(api.SESSION_UNSUBSCRIBED, note)
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("$share/g/a", 0))
    hooked.node.feed(client, encode.unsubscribe(5, 2, [b"$share/g/c/a"]))
    names = ["Access", "Subscription", "Subscription", "Unsubscription", "Unsubscription"]
    assert told == [(name, "$share/g/", filter) for name, filter in zip(names, ["a", "a", *["c/a"] * 3], strict=True)]


def test_too_many_rules_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="rewrite: 1025 rules; 1024 are the most"):
        Hooked([PUBLISH_RULE] * 1025)


# --- auto-subscribe -------------------------------------------------------------------------------------------------


def test_every_client_is_subscribed_to_what_the_configuration_says() -> None:
    hooked = Hooked(
        [SUBSCRIBE_RULE],
        [
            AutoSubscribeSettings(topic="c/${clientid}/cmd", qos=1, nl=1),
            AutoSubscribeSettings(topic="u/${username}"),
            AutoSubscribeSettings(topic="old/x"),
        ],
    )
    client = a_client(hooked, "dev")
    session = client.session
    assert session is not None
    subscriptions = {s.filter: (s.qos, s.no_local) for s in session.subscriptions.all()}
    assert subscriptions == {b"c/dev/cmd": (1, True), b"old/x": (0, False)}
    assert hooked.received(client) == []


@pytest.mark.parametrize("client_id", ["$SYS", "a/b", "+", "#"])
def test_what_a_client_calls_itself_leads_it_nowhere(client_id: str) -> None:
    hooked = Hooked((), [AutoSubscribeSettings(topic="${clientid}/x")])
    session = a_client(hooked, client_id).session
    assert session is not None
    assert session.subscriptions.all() == []


def test_auto_subscriptions_are_authorized_and_a_denial_is_nobodys_fault() -> None:
    hooked = Hooked((), [AutoSubscribeSettings(topic="c/${clientid}/cmd"), AutoSubscribeSettings(topic="all/#")])
    hooked.disconnects_the_denied = True
    hooked.hook(api.CLIENT_AUTHORIZE, lambda event: api.Deny() if event.topic == "all/#" else None)
    client = a_client(hooked, "dev")
    session = client.session
    assert session is not None
    assert [subscription.filter for subscription in session.subscriptions.all()] == [b"c/dev/cmd"]
    assert [topic for _, topic, _ in hooked.asked] == [b"c/dev/cmd"]
    assert hooked.received(client) == []


# --- hooks ----------------------------------------------------------------------------------------------------------


def test_a_handler_changes_messages_on_its_topics_only() -> None:
    hooked = Hooked([PUBLISH_RULE])
    hooked.hook(
        api.MESSAGE_PUBLISH,
        lambda event: msgspec.structs.replace(event, payload=event.payload.upper()),
        filters=(b"new/#", b"new/x"),
    )
    node = hooked.node
    client = a_client(hooked, "c")
    node.subscribe(client, ("#", 1))
    assert node.feed(client, publish(5, "old/x", "loud")) == [publish(5, "new/x", "LOUD")]
    assert node.feed(client, publish(5, "still", "quiet")) == [publish(5, "still", "quiet")]
    assert hooked.plugin.calls == 1
    answer = node.feed(client, publish(5, "new/x", "loud", qos=1, packet_id=9))
    assert publish(5, "new/x", "LOUD", qos=1, packet_id=9) in answer
    assert encode.pub_ack(frame.PUBACK, 5, 9, 0) in answer


def test_a_handler_sees_and_changes_properties() -> None:
    hooked = Hooked()

    def stamp(event: api.Message) -> api.Message:
        properties = event.properties or Properties()
        properties.user_properties = [*(properties.user_properties or []), (b"seen-by", b"p")]
        properties.message_expiry_interval = 60
        return msgspec.structs.replace(event, properties=properties)

    hooked.hook(api.MESSAGE_PUBLISH, stamp, filters=(b"#",))
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("a", 0))
    (packet,) = hooked.node.feed(client, publish(4 + 1, "a", "1"))
    assert b"seen-by" in packet
    old = a_client(hooked, "old", 4)
    hooked.node.feed(old, publish(4, "a", "2"))
    (packet,) = hooked.received(client)
    assert b"seen-by" in packet


@pytest.mark.parametrize(("version", "said"), [(5, Reason.QUOTA_EXCEEDED), (4, Reason.SUCCESS)])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_denied_message_goes_nowhere_and_5_0_hears_why(version: int, said: int, qos: int) -> None:
    hooked = Hooked()
    hooked.hook(api.MESSAGE_PUBLISH, lambda event: api.Deny(Reason.QUOTA_EXCEEDED), filters=(b"#",))
    client = a_client(hooked, "c", version)
    hooked.node.subscribe(client, ("#", 0))
    kind = frame.PUBACK if qos == 1 else frame.PUBREC
    answer = hooked.node.feed(client, publish(version, "a", "1", qos=qos, packet_id=3))
    assert answer == [encode.pub_ack(kind, version, 3, said)]


def test_a_fenced_plugins_topics_are_back_on_the_fast_road() -> None:
    hooked = Hooked()

    def fail(event: api.Message) -> None:
        raise RuntimeError

    hooked.hook(api.MESSAGE_PUBLISH, fail, filters=(b"#",))
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("a", 0))
    for _ in range(PLUGIN_FAILURES_MAX + 2):
        assert hooked.node.feed(client, publish(5, "a", "1")) == [publish(5, "a", "1")]
    assert len(hooked.router.intercepts) == 0
    assert len(hooked.router.heads5) == 1
    assert hooked.plugin.calls == PLUGIN_FAILURES_MAX


def test_a_client_can_be_refused_at_connect() -> None:
    hooked = Hooked()
    connacks: list[int] = []
    hooked.hook(api.CLIENT_CONNECT, lambda event: api.Deny(Reason.BANNED) if event.client_id == "bad" else None)
    hooked.hook(api.CLIENT_CONNACK, lambda event: connacks.append(event.reason))
    bad = hooked.node.opened()
    assert hooked.node.feed(bad, encode.connect(Connect(5, b"bad"))) == [encode.connack(5, Reason.BANNED)]
    assert bad.state == CLOSED
    a_client(hooked, "good")
    assert connacks == [Reason.BANNED, Reason.SUCCESS]


def test_a_handler_says_who_a_client_is_or_that_it_may_not_be() -> None:
    hooked = Hooked()
    hooked.hook(
        api.CLIENT_AUTHENTICATE,
        lambda event: api.Allow(superuser=True) if event.password == b"secret" else api.Deny(0x86),
    )
    known = hooked.node.client("k", 5, Connect(5, b"k", user_name=b"ann", password=b"secret"))
    assert known.principal.username == b"ann"
    assert known.principal.superuser
    unknown = hooked.node.opened()
    answer = hooked.node.feed(unknown, encode.connect(Connect(4, b"u", user_name=b"ann", password=b"guess")))
    assert answer == [encode.connack(4, 0x86)]


def test_a_handler_authorizes_before_the_rules_do() -> None:
    hooked = Hooked()
    verdicts = {"yes": api.Allow(), "no": api.Deny(), "others": None}
    seen: list[tuple[str, str]] = []

    def judge(event: api.Access) -> api.Allow | api.Deny | None:
        seen.append((event.action, event.topic))
        return verdicts[event.topic]

    hooked.hook(api.CLIENT_AUTHORIZE, judge)
    client = a_client(hooked, "c")
    answer = hooked.node.subscribe(client, ("yes", 0), ("no", 0), ("others", 0))
    assert answer == [encode.suback(5, 1, [0, Reason.NOT_AUTHORIZED, 0])]
    assert [topic for _, topic, _ in hooked.asked] == [b"others"]
    for topic in ("yes", "no"):
        hooked.node.feed(client, publish(5, topic, "1"))
    assert seen[3:] == [("publish", "yes"), ("publish", "no")]


def test_subscriptions_are_changed_denied_and_told_of() -> None:
    hooked = Hooked()
    told: list[str] = []

    def change(event: api.Subscription) -> api.Subscription | api.Deny | None:
        if event.filter == "secret":
            return api.Deny()
        return msgspec.structs.replace(event, filter=f"{event.client.client_id}/{event.filter}")

    hooked.hook(api.CLIENT_SUBSCRIBE, change)
    hooked.hook(
        api.CLIENT_UNSUBSCRIBE,
        lambda event: msgspec.structs.replace(event, filter=f"{event.client.client_id}/{event.filter}"),
    )
    hooked.hook(api.SESSION_SUBSCRIBED, lambda event: told.append(f"+{event.filter} {event.qos}"))
    hooked.hook(api.SESSION_UNSUBSCRIBED, lambda event: told.append(f"-{event.filter}"))
    client = a_client(hooked, "c")
    assert hooked.node.subscribe(client, ("a", 1), ("secret", 1)) == [encode.suback(5, 1, [1, Reason.NOT_AUTHORIZED])]
    assert hooked.node.feed(client, encode.unsubscribe(5, 2, [b"a", b"b"])) == [encode.unsuback(5, 2, [0, 0x11])]
    assert told == ["+c/a 1", "-c/a"]


def test_the_life_of_a_session_is_told_in_its_order() -> None:
    hooked = Hooked()
    told: list[str] = []
    for point in (
        *(api.SESSION_CREATED, api.SESSION_RESUMED, api.SESSION_TERMINATED),
        *(api.CLIENT_CONNECTED, api.CLIENT_DISCONNECTED),
    ):
        hooked.hook(point, lambda event, point=point: told.append(point.name))  # type: ignore[misc]
    client = hooked.node.client("c", 4)
    session = client.session
    assert session is not None
    hooked.node.feed(client, encode.disconnect(4))
    hooked.plugin_hooks.connected(client, session, True)
    assert told == [
        *("session.created", "client.connected", "session.terminated", "client.disconnected"),
        *("session.resumed", "client.connected"),
    ]


def test_plugins_are_told_of_as_rows_and_samples() -> None:
    hooked = Hooked()
    hooked.hook(api.CLIENT_CONNECTED, lambda event: None)
    a_client(hooked, "c")
    (row,) = hooked.plugin_hooks.rows()
    assert (row.name, row.version, row.state, row.points, row.calls) == ("p", "1", "running", ["client.connected"], 1)
    assert {sample.name: sample.value for sample in hooked.plugin_hooks.samples()}["flockmq_plugin_calls"] == 1
    assert hooked.plugin_hooks.enable("p") == row
    assert hooked.plugin_hooks.enable("nobody") is None
