"""Plugins: what their handlers change, deny and are told; all else stays on the fast path."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import plugins as api
from flockmq.bounds import PLUGIN_FAILURES_MAX
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from unit.broker.node.hooked import PUBLISH_RULE, Hooked, a_client
from unit.broker.protocol.harness import publish


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


def test_a_fenced_plugins_topics_are_back_on_the_fast_path() -> None:
    hooked = Hooked()

    def fail(event: api.Message) -> None:
        raise RuntimeError

    hooked.hook(api.MESSAGE_PUBLISH, fail, filters=(b"#",))
    client = a_client(hooked, "c")
    hooked.node.subscribe(client, ("a", 0))
    for _ in range(PLUGIN_FAILURES_MAX + 2):
        assert hooked.node.feed(client, publish(5, "a", "1")) == [publish(5, "a", "1")]
    assert len(hooked.router.intercepts) == 0
    assert len(hooked.router.matches.heads5) == 1
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
