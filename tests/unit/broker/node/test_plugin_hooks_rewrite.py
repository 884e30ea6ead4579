"""Topic rewrites and auto-subscriptions: which topics and filters clients really use."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import plugins as api
from flockmq.config.feature_settings import AutoSubscribeSettings, RewriteSettings
from flockmq.errors import ConfigError
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.reason import Reason
from unit.broker.node.hooked import PUBLISH_RULE, Hooked, a_client
from unit.broker.protocol.harness import Client, publish

SUBSCRIBE_RULE = RewriteSettings(action="subscribe", source_topic="old/#", re="^old/(.+)$", dest_topic="new/$1")
OWN_RULE = RewriteSettings(source_topic="up/#", re="^up/(.+)$", dest_topic="of/${clientid}/${username}/$1")


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


def test_other_topics_stay_on_the_fast_path() -> None:
    hooked = Hooked([PUBLISH_RULE])
    publisher = a_client(hooked, "p")
    hooked.node.feed(publisher, publish(5, "other", "1") + publish(5, "old/x", "1"))
    (head,) = hooked.router.matches.heads5
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
