"""Topic rewrite rules: change topics and filters of clients into those that the broker uses.

A rule applies to publishes, subscriptions (and UNSUBSCRIBE), or both. A topic that matches the rule's source filter and
regular expression becomes its destination, in which `$1`, `$2`, … are the matched groups, and `${clientid}` and
`${username}` the client's. As in EMQX, only the last rule whose source filter matches is used: if its expression
doesn't match, the topic stays.

The prefixes `$share/group/`, `$exclusive/` and `$delayed/seconds/` stay; only what follows is rewritten. Invariant: the
result is a valid topic name or filter, or b"": refused.
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
        """The source filters of all rules."""
        return [rule.source for rule in self._rules]

    def topic(self, topic: bytes, client_id: bytes, username: bytes) -> bytes:
        """The topic to which a message is published; b"": refused."""
        rewritten = self._apply(topic, client_id, username)
        if rewritten == topic:
            return topic
        try:
            check_topic_name(rewritten)
        except PacketError:
            return b""
        return rewritten

    def filter(self, topic_filter: bytes, client_id: bytes, username: bytes) -> bytes:
        """The filter that is subscribed to instead of a valid filter; b"": refused."""
        rewritten = self._apply(topic_filter, client_id, username)
        if rewritten == topic_filter:
            return topic_filter
        try:
            check_filter(rewritten)
        except PacketError:
            return b""
        return rewritten

    def _apply(self, original: bytes, client_id: bytes, username: bytes) -> bytes:
        prefix, topic = unwrap(original)
        rewritten = self._rewritten(topic, client_id, username)
        return prefix + rewritten if rewritten else b""

    def _rewritten(self, topic: bytes, client_id: bytes, username: bytes) -> bytes:
        deciding = -1
        for number in self._index.match(topic):
            assert isinstance(number, int)
            deciding = max(deciding, number)
        return topic if deciding < 0 else self._rules[deciding].apply(topic, client_id, username)
