"""Rules and plugins decide what a connected client may do."""

from __future__ import annotations

import pytest

from flockmq.config.auth_settings import (
    AuthorizationSettings,
    BuiltInSourceSettings,
    FileSourceSettings,
    RuleSettings,
)
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ALLOWED, DENIED, SUBSCRIBE, Principal
from unit.broker.node.gate import OPEN, Make, connack
from unit.broker.protocol.harness import publish


async def test_a_plugin_has_the_first_word_and_rules_the_next(gate: Make) -> None:
    node = gate(OPEN, AuthorizationSettings(sources=(BuiltInSourceSettings(),)))
    client, _ = connack(node)
    refused = [encode.pub_ack(4, 5, 1, Reason.NOT_AUTHORIZED)]
    assert node.node.feed(client, publish(5, "a", qos=1, packet_id=1)) == refused
    node.plugins.verdict = ALLOWED
    assert node.node.feed(client, publish(5, "a", qos=1, packet_id=1)) != refused
    node.plugins.verdict = DENIED
    assert node.node.feed(client, publish(5, "b", qos=1, packet_id=1)) == refused


@pytest.mark.parametrize("prefix", ["$share/g/", "$exclusive/", "$delayed/5/", "$share/g/$exclusive/"])
async def test_rules_and_plugins_judge_what_stands_behind_prefixes(gate: Make, prefix: str) -> None:
    node = gate(
        OPEN, AuthorizationSettings(sources=(FileSourceSettings(rules=(RuleSettings(permit="allow", topics=("t",)),)),))
    )
    client, _ = connack(node)
    verdicts = [
        node.access.authorize(client, SUBSCRIBE, f"{prefix}{topic}".encode(), 0, False, lambda _: None)
        for topic in ("t", "x", "#")
    ]
    assert verdicts == [ALLOWED, DENIED, DENIED]
    assert node.plugins.asked == [(prefix.encode(), topic) for topic in (b"t", b"x", b"#")]


async def test_who_may_do_everything_is_never_asked_about(gate: Make) -> None:
    node = gate(OPEN, AuthorizationSettings(no_match="deny"))
    node.plugins.verdict = DENIED
    assert not node.access.must_authorize(Principal(b"boss", superuser=True))
    assert node.access.must_authorize(Principal(b"jo"))
