"""Topic rewrite: rules that turn the topics that clients say into those that the broker works with.

A rule is for publishes, subscriptions (UNSUBSCRIBE among them) or both: topics that match its source filter and its
regular expression become its destination, in which `$1`, `$2`, … are what the groups matched and `${clientid}` and
`${username}` the client's. As in EMQX, the last rule whose source filter matches decides alone: where its expression
doesn't match, the topic stays.

What is rewritten is what stands behind `$share/group/`, `$exclusive/` and `$delayed/seconds/`, which stay.

What always holds: the result is a topic name, or a filter, or b"": refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.rewrite_rule import RewriteRule
from flockmq.mqtt.topics import check_filter, check_topic_name, unwrap
from flockmq.routing.filter_index import FilterIndex


class RewriteRules:
    """The rules for one action, in the order of the configuration."""

    __slots__ = ("_index", "_rules")

    def __init__(self, rules: Sequence[RewriteRule]) -> None:
        self._rules = list(rules)
        self._index = FilterIndex()
        for number, rule in enumerate(self._rules):
            self._index.add(rule.source, number)

    def __len__(self) -> int:
        return len(self._rules)

    def sources(self) -> list[bytes]:
        """The filters of the topics that a rule is for."""
        return [rule.source for rule in self._rules]

    def topic(self, topic: bytes, client_id: bytes, username: bytes) -> bytes:
        """Where a message to `topic` goes; b"": nowhere."""
        rewritten = self._apply(topic, client_id, username)
        if rewritten == topic:
            return topic
        try:
            check_topic_name(rewritten)
        except PacketError:
            return b""
        return rewritten

    def filter(self, topic_filter: bytes, client_id: bytes, username: bytes) -> bytes:
        """What a subscription to a valid filter subscribes to; b"": nothing."""
        rewritten = self._apply(topic_filter, client_id, username)
        if rewritten == topic_filter:
            return topic_filter
        try:
            check_filter(rewritten)
        except PacketError:
            return b""
        return rewritten

    def _apply(self, said: bytes, client_id: bytes, username: bytes) -> bytes:
        prefix, topic = unwrap(said)
        rewritten = self._rewritten(topic, client_id, username)
        return prefix + rewritten if rewritten else b""

    def _rewritten(self, topic: bytes, client_id: bytes, username: bytes) -> bytes:
        deciding = -1
        for number in self._index.match(topic):
            assert isinstance(number, int)
            deciding = max(deciding, number)
        return topic if deciding < 0 else self._rules[deciding].apply(topic, client_id, username)
