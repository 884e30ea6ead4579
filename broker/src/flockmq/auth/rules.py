"""Compiled access rules: they decide whether a client may publish or subscribe to a topic. No I/O.

The first rule that matches decides:
- For a publish, a rule matches if one of its filters matches the topic.
- For a subscribe, an `allow` matches if one of its filters covers the whole requested filter.
- For a subscribe, a `deny` matches if one of its filters overlaps the requested filter. So a wider wildcard doesn't
  reach denied topics.
- `eq FILTER` matches only exactly this text.

`rule_index` finds the rules that may match; only these are checked.

Invariants: a client's own values can't widen a rule. An `allow` with `${clientid}` or `${username}` never matches if
the client lacks that value, if the value contains `/`, `+` or `#`, or if it would turn the filter into one of `$SYS` or
another `$` topic.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from flockmq.auth.addresses import Network, plain_address, plain_network
from flockmq.auth.name_patterns import check_length, glob, is_pattern
from flockmq.auth.rule_index import HASH, PLUS, Levels, RuleIndex, Who
from flockmq.auth.template import Template
from flockmq.bounds import RULES_OF_ONE_MAX
from flockmq.config.auth_settings import RuleSettings, Some
from flockmq.mqtt.topics import unwrap
from flockmq.protocol.client import PUBLISH, SUBSCRIBE, UNKNOWN

ACTIONS: Final = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "all": PUBLISH | SUBSCRIBE}
FINGERPRINT_BYTES: Final = 8
_FOUND_AS_LOOKED_AT: Final = 8
"""This many index hits or search steps count as one rule check."""
CLIENT_VALUES: Final = ("clientid", "username", "peerhost", "cert_common_name")


class Subject:
    """The client that rules are checked for. `looked_at` counts the checks."""

    __slots__ = ("clientid", "common_name", "looked_at", "peerhost", "username")

    def __init__(self, clientid: str, username: str, peerhost: str, common_name: str | None = None) -> None:
        self.clientid = clientid
        self.username = username
        self.peerhost = peerhost
        self.common_name = common_name
        self.looked_at = 0

    def value(self, name: str) -> str | None:
        """The value of the placeholder `${name}`, or None if the client has none."""
        match name:
            case "clientid":
                return self.clientid
            case "username":
                return self.username or None
            case "peerhost":
                return self.peerhost
        return self.common_name


class Rules:
    """A list of rules in order. The constructor raises ValueError, which names the invalid rule."""

    __slots__ = ("_index", "_patterns", "asks_where", "digest")

    def __init__(self, rules: Sequence[RuleSettings]) -> None:
        if len(rules) > RULES_OF_ONE_MAX:
            raise ValueError(f"{len(rules)} rules are more than {RULES_OF_ONE_MAX}")
        self.digest = digest(msgspec.json.encode(rules))
        self.asks_where = any(_asks_where(rule) for rule in rules)
        """True if a rule depends on the client's address or certificate."""
        self._index = RuleIndex()
        self._patterns: list[tuple[_Compiled, Pattern]] = []
        for place, rule in enumerate(rules, start=1):
            try:
                self._add(rule)
            except ValueError as error:
                raise ValueError(f"rule {place}: {error}") from None

    def _add(self, rule: RuleSettings) -> None:
        compiled, who = _Compiled(rule), _who(rule)
        for pattern in [_pattern(topic, compiled.permits) for topic in rule.topics] or [_ANYTHING]:
            self._index.add(len(self._patterns), who, pattern.levels, denies=not compiled.permits)
            self._patterns.append((compiled, pattern))

    def about(self, subject: Subject) -> Sequence[Rules]:
        """As in `rule_sources.Source`: these rules, for every client."""
        return (self,)

    def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """Whether the client may do this; None if no rule matches."""
        levels = tuple(topic.split(b"/"))
        found, steps = self._index.find(subject.clientid, subject.username, levels)
        subject.looked_at += (len(found) + steps) // _FOUND_AS_LOOKED_AT
        for number in found:
            subject.looked_at += 1
            rule, pattern = self._patterns[number]
            if rule.holds(subject, action, qos, retain) and pattern.fits(subject, rule.permits, action, topic, levels):
                return rule.permits
        return None


def compile_rules(rules: Sequence[RuleSettings]) -> Rules:
    """Compile new rules, from a user or a service. Raises ValueError, also for topics with a prefix such as
    `$share/GROUP/`: they could never match, because prefixes are removed before the check. (The log may hold such rules
    from an older release; they never match.)"""
    for place, rule in enumerate(rules, start=1):
        for topic in rule.topics:
            prefix, mend = _prefixed(topic)
            if prefix:
                raise ValueError(f"rule {place}: topic {topic!r} fits nothing: {prefix} isn't looked at; write {mend}")
        try:
            check_length(rule.clientid or "")
            check_length(rule.username or "")
        except ValueError as error:
            raise ValueError(f"rule {place}: clientid or username {error}") from None
    return Rules(rules)


def digest(*parts: bytes) -> bytes:
    """A hash of FINGERPRINT_BYTES over the parts."""
    hashed = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    for part in parts:
        hashed.update(len(part).to_bytes(4, "big") + part)
    return hashed.digest()


def _asks_where(rule: RuleSettings) -> bool:
    return bool(rule.ipaddr) or any("${peerhost}" in topic or "${cert_common_name}" in topic for topic in rule.topics)


def _who(rule: RuleSettings) -> Who | None:
    """The single client id or user name that a rule is about, if there is one."""
    for name, wanted in (("clientid", rule.clientid), ("username", rule.username)):
        if wanted and not is_pattern(wanted):
            return name, wanted
    return None


class _Compiled:
    """The conditions of a rule, except its topics."""

    __slots__ = ("_action", "_networks", "_qos", "_retain", "_who", "permits")

    def __init__(self, rule: RuleSettings) -> None:
        self.permits = rule.permit == "allow"
        self._action = ACTIONS[rule.action]
        self._qos = frozenset(rule.qos)
        self._retain = rule.retain
        self._who = tuple(
            (name, glob(wanted))
            for name, wanted in (("clientid", rule.clientid), ("username", rule.username))
            if wanted
        )
        self._networks = tuple(_network(text) for text in rule.ipaddr)
        if rule.clientid == "" or rule.username == "":
            raise ValueError('clientid and username must not be empty; leave them away, or say "*"')
        if rule.retain is not None and rule.action == "subscribe":
            raise ValueError("retain is of publishes only")

    def holds(self, subject: Subject, action: int, qos: int, retain: bool) -> bool:
        """Whether all conditions hold for this client and action."""
        if not self._action & action or (self._qos and qos not in self._qos):
            return False
        if self._retain is not None and (action != PUBLISH or retain != self._retain):
            return False
        for name, is_wanted in self._who:
            if not is_wanted(subject.value(name) or ""):
                return False
        subject.looked_at += len(self._networks)
        if self._networks and not _is_in(subject.peerhost, self._networks):
            return subject.peerhost == UNKNOWN and not self.permits
        return True


# --- topics ---------------------------------------------------------------------------------------------------------


class _Anything:
    """The pattern of a rule without topics: it matches every topic."""

    __slots__ = ()
    levels: Final[Levels] = (HASH,)

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        return True


class _Equal:
    """The pattern `eq FILTER`."""

    __slots__ = ("_filter", "levels")

    def __init__(self, filter: bytes) -> None:
        self._filter = filter
        self.levels = tuple(filter.split(b"/"))

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        return topic == self._filter


class _Fixed:
    """A filter without placeholders."""

    __slots__ = ("levels",)

    def __init__(self, filter: bytes) -> None:
        self.levels = tuple(filter.split(b"/"))

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        return _fits(self.levels, permits, action, levels)


class _Personal:
    """A filter with placeholders."""

    __slots__ = ("_is_system", "_template", "levels")

    def __init__(self, text: str, template: Template, permits: bool) -> None:
        self._template = template
        self._is_system = _is_system(template.render(lambda _: "x").encode())
        self.levels = _for_any_client(tuple(text.encode().split(b"/")), permits)

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        values = [subject.value(name) for name in self._template.names]
        if None in values or (permits and any(_UNSAFE.search(value) for value in values if value is not None)):
            return False
        own = tuple(self._template.render(subject.value).encode().split(b"/"))
        if permits and _is_system(own[0]) and not self._is_system:
            return False
        return _fits(own, permits, action, levels)


def _for_any_client(levels: Levels, permits: bool) -> Levels:
    """For the index: a filter that covers this one with placeholders, for any client. In an `allow` a level with
    placeholders stays one level. In a `deny` it may become several, because a client's value may contain `/`."""
    if permits:
        return tuple(PLUS if b"${" in level else level for level in levels)
    return (*itertools.takewhile(lambda level: b"${" not in level, levels), HASH)


_UNSAFE: Final = re.compile(r"[/+#]|^$")
_ANYTHING: Final = _Anything()
Pattern = _Anything | _Equal | _Fixed | _Personal


def _pattern(text: str, permits: bool) -> Pattern:
    if text.startswith("eq "):
        return _Equal(text[3:].encode())
    _check_filter(text)
    try:
        template = Template(text, CLIENT_VALUES)
    except ValueError as error:
        raise ValueError(f"topic {text!r}: {error}") from None
    return _Personal(text, template, permits) if template.names else _Fixed(text.encode())


def _check_filter(text: str) -> None:
    levels = text.split("/")
    if not text or "\0" in text:
        raise ValueError(f"topic {text!r} is empty or has a NUL in it")
    for place, level in enumerate(levels, start=1):
        if ("#" in level and (level != "#" or place != len(levels))) or ("+" in level and level != "+"):
            raise ValueError(f"topic {text!r}: '+' must be a whole level, and '#' the whole last one")


def _prefixed(text: str) -> tuple[str, str]:
    """The prefix of a topic that rules don't see, and a text that says what to write instead; ("", "") if there is
    none."""
    equal = "eq " if text.startswith("eq ") else ""
    topic = text.removeprefix(equal)
    for prefix in ("$share/", "$exclusive/", "$delayed/"):
        if topic.startswith(prefix):
            wrapped, behind = (part.decode() for part in unwrap(topic.encode()))
            return (wrapped, repr(equal + behind)) if wrapped else (topic, "what stands behind it")
    return "", ""


def _fits(own: Levels, permits: bool, action: int, asked: Levels) -> bool:
    if _is_system(asked[0]) and own[0] in (PLUS, HASH):
        return False
    if action == PUBLISH or permits:
        return covers(own, asked)
    return overlaps(own, asked)


def covers(own: Levels, asked: Levels) -> bool:
    """Whether the filter `own` matches every topic that `asked`, a topic or a filter, matches."""
    for place, level in enumerate(own):
        if level == HASH:
            return True
        if place == len(asked) or asked[place] == HASH:
            return False
        if level not in (PLUS, asked[place]) or (level != PLUS and asked[place] == PLUS):
            return False
    return len(own) == len(asked)


def overlaps(one: Levels, other: Levels) -> bool:
    """Whether some topic matches both filters."""
    if (_is_system(one[0]) and other[0] in (PLUS, HASH)) or (_is_system(other[0]) and one[0] in (PLUS, HASH)):
        return False
    for mine, theirs in zip(one, other, strict=False):
        if HASH in (mine, theirs):
            return True
        if mine != theirs and PLUS not in (mine, theirs):
            return False
    longer = max(one, other, key=len)
    return len(one) == len(other) or longer[min(len(one), len(other))] == HASH


def _is_system(level: bytes) -> bool:
    """Whether a first level begins with `$`; wildcards in the first level don't match it [MQTT-4.7.2-1]."""
    return level[:1] == b"$"


def reveals_clients(filter: bytes) -> bool:
    """Whether a topic or filter includes `$SYS` topics with client ids, user names and addresses."""
    return filter.startswith(b"$SYS/") and overlaps(tuple(filter.split(b"/")), _CLIENTS)


_CLIENTS: Final[Levels] = (b"$SYS", b"brokers", b"+", b"clients", b"#")

# --- who ------------------------------------------------------------------------------------------------------------


def _network(text: str) -> Network:
    try:
        return plain_network(text)
    except ValueError:
        raise ValueError(
            f"ipaddr {text!r} isn't an address or a network; for example 192.0.2.7 or 10.0.0.0/8"
        ) from None


def _is_in(host: str, networks: Sequence[Network]) -> bool:
    try:
        address = plain_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


# --- rules in tokens and HTTP answers -------------------------------------------------------------------------------


class _Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule in EMQX's form or ours. Unknown fields are refused, because they might be conditions. So is null: a rule
    whose issuer had no value would hold for all."""

    permit: str | UnsetType = UNSET
    permission: str | UnsetType = UNSET
    action: str = "all"
    topic: str | UnsetType = UNSET
    topics: Some[str] = ()
    qos: Some[int] | int = ()
    retain: bool | str | UnsetType = UNSET
    username: str | UnsetType = UNSET
    clientid: str | UnsetType = UNSET
    ipaddr: Some[str] = ()


def claimed(value: object) -> Rules:
    """Compile the rules in a token or in an HTTP answer: a list of rules, or a dict of what is allowed:
    `{"pub": [FILTER…], "sub": […], "all": […]}`. Raises ValueError; the caller must then refuse the client."""
    if isinstance(value, Mapping):
        if unknown := set(value) - {"pub", "sub", "all"}:
            raise ValueError(f"{', '.join(map(repr, sorted(map(str, unknown))))} is none of pub, sub, all")
        lists = msgspec.convert(value, dict[str, tuple[str, ...]])
        names = {"pub": "publish", "sub": "subscribe", "all": "all"}
        rules = [
            {"permit": "allow", "action": names[name], "topics": topics} for name, topics in lists.items() if topics
        ]
        return compile_rules([msgspec.convert(rule, RuleSettings) for rule in rules])
    return compile_rules([_own(rule) for rule in msgspec.convert(value, tuple[_Claimed, ...])])


def _own(rule: _Claimed) -> RuleSettings:
    if rule.permit and rule.permission:
        raise ValueError("it has permit and permission, of which one is enough")
    topics = (*rule.topics, rule.topic) if isinstance(rule.topic, str) else rule.topics
    fields = {
        "permit": rule.permit or rule.permission,
        "action": rule.action,
        "topics": topics,
        "qos": (rule.qos,) if isinstance(rule.qos, int) else rule.qos,
        "retain": {"all": UNSET, "true": True, "false": False}.get(rule.retain, rule.retain)
        if isinstance(rule.retain, str)
        else rule.retain,
        "username": rule.username,
        "clientid": rule.clientid,
        "ipaddr": rule.ipaddr,
    }
    return msgspec.convert({name: value for name, value in fields.items() if value not in ((), UNSET)}, RuleSettings)
