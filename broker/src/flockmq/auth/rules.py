"""Access rules, compiled: whether one client may do one thing to one topic. Pure.

The first rule that fits decides. For a publish, a rule fits if one of its filters matches the topic. For a subscribe,
an `allow` fits if one of its filters covers the whole filter that is asked for. A `deny` fits as soon as one overlaps
it, so that a wider wildcard doesn't get what is denied. `eq FILTER` fits only these very letters. Only rules that might
fit are looked at (`rule_index`).

What always holds: a client's own texts can't widen a rule. An `allow` with `${clientid}` or `${username}` never fits a
client that has no such value, or one with `/`, `+` or `#` in it, or one that would make `$SYS` and its like of it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import ipaddress
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from flockmq.auth.rule_index import HASH, PLUS, Levels, RuleIndex, Who
from flockmq.auth.template import Template
from flockmq.bounds import RULES_OF_ONE_MAX
from flockmq.config.auth_settings import RuleSettings, Some
from flockmq.mqtt.topics import unwrap
from flockmq.protocol.peer import UNKNOWN
from flockmq.protocol.verdicts import PUBLISH, SUBSCRIBE

ACTIONS: Final = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "all": PUBLISH | SUBSCRIBE}
FINGERPRINT_BYTES: Final = 8
_FOUND_AS_LOOKED_AT: Final = 8
"""So many found rules, or steps to find them, cost as much as looking at one rule."""
CLIENT_VALUES: Final = ("clientid", "username", "peerhost", "cert_common_name")


class Subject:
    """Whom rules are checked against, and how many were."""

    __slots__ = ("clientid", "common_name", "looked_at", "peerhost", "username")

    def __init__(self, clientid: str, username: str, peerhost: str, common_name: str | None = None) -> None:
        self.clientid = clientid
        self.username = username
        self.peerhost = peerhost
        self.common_name = common_name
        self.looked_at = 0

    def value(self, name: str) -> str | None:
        """What `${name}` stands for; None: this client has none."""
        match name:
            case "clientid":
                return self.clientid
            case "username":
                return self.username or None
            case "peerhost":
                return self.peerhost
        return self.common_name


class Rules:
    """Some rules in their order. Raises ValueError that names the rule and the mend."""

    __slots__ = ("_index", "_patterns", "asks_where", "digest")

    def __init__(self, rules: Sequence[RuleSettings]) -> None:
        if len(rules) > RULES_OF_ONE_MAX:
            raise ValueError(f"{len(rules)} rules are more than {RULES_OF_ONE_MAX}")
        self.digest = digest(msgspec.json.encode(rules))
        self.asks_where = any(_asks_where(rule) for rule in rules)
        """Whether a rule depends on the client's address or certificate."""
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
        """Whether the rules are the same for everybody."""
        return (self,)

    def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """Whether the client may do it; None: no rule fits."""
        levels = tuple(topic.split(b"/"))
        found, steps = self._index.find(subject.clientid, subject.username, levels)
        subject.looked_at += (len(found) + steps) // _FOUND_AS_LOOKED_AT
        for number in found:
            subject.looked_at += 1
            rule, pattern = self._patterns[number]
            if rule.holds(subject, action, qos, retain) and pattern.fits(subject, rule.permits, action, topic, levels):
                return rule.permits
        return None


def meant(rules: Sequence[RuleSettings]) -> Rules:
    """Rules that a user or a service says. Raises ValueError, also for topics that begin with `$share/GROUP/` and the
    like: they would fit nothing, because rules are checked against what stands behind that. (The log may have such
    topics from an older release; they go on fitting nothing.)"""
    for place, rule in enumerate(rules, start=1):
        for topic in rule.topics:
            prefix, mend = _prefixed(topic)
            if prefix:
                raise ValueError(f"rule {place}: topic {topic!r} fits nothing: {prefix} isn't looked at; write {mend}")
    return Rules(rules)


def digest(*parts: bytes) -> bytes:
    """FINGERPRINT_BYTES that stand for these."""
    hashed = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    for part in parts:
        hashed.update(len(part).to_bytes(4, "big") + part)
    return hashed.digest()


def _asks_where(rule: RuleSettings) -> bool:
    return bool(rule.ipaddr) or any("${peerhost}" in topic or "${cert_common_name}" in topic for topic in rule.topics)


def _who(rule: RuleSettings) -> Who | None:
    """The one client id, or user, that a rule is about."""
    for name, wanted in (("clientid", rule.clientid), ("username", rule.username)):
        if wanted and not _is_glob(wanted):
            return name, wanted
    return None


class _Compiled:
    """A rule without its topics."""

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
        """Whether the rule is about this client and what it does."""
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
    """A rule without topics is about all of them."""

    __slots__ = ()
    levels: Final[Levels] = (HASH,)

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        return True


class _Equal:
    """`eq FILTER`."""

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
    """A filter with placeholders, each of which stands for a part of one level."""

    __slots__ = ("_is_system", "_template", "levels")

    def __init__(self, text: str, template: Template, permits: bool) -> None:
        self._template = template
        self._is_system = _is_system(template.render(lambda _: "x").encode())
        self.levels = _of_whoever(tuple(text.encode().split(b"/")), permits)

    def fits(self, subject: Subject, permits: bool, action: int, topic: bytes, levels: Levels) -> bool:
        values = [subject.value(name) for name in self._template.names]
        if None in values or (permits and any(_UNSAFE.search(value) for value in values if value is not None)):
            return False
        own = tuple(self._template.render(subject.value).encode().split(b"/"))
        if permits and _is_system(own[0]) and not self._is_system:
            return False
        return _fits(own, permits, action, levels)


def _of_whoever(levels: Levels, permits: bool) -> Levels:
    """A filter that matches all that this one, which has placeholders, matches for any client. For an `allow` each
    level with placeholders is one level; for a `deny` it may be more, because a client's value may have `/` in it."""
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
    """The beginning of a topic that no rule sees, and what to write instead; two empty texts if it has none."""
    equal = "eq " if text.startswith("eq ") else ""
    said = text.removeprefix(equal)
    for prefix in ("$share/", "$exclusive/", "$delayed/"):
        if said.startswith(prefix):
            wrapped, behind = (part.decode() for part in unwrap(said.encode()))
            return (wrapped, repr(equal + behind)) if wrapped else (said, "what stands behind it")
    return "", ""


def _fits(own: Levels, permits: bool, action: int, asked: Levels) -> bool:
    if _is_system(asked[0]) and own[0] in (PLUS, HASH):
        return False
    if action == PUBLISH or permits:
        return covers(own, asked)
    return overlaps(own, asked)


def covers(own: Levels, asked: Levels) -> bool:
    """Every topic that `asked`, a topic or a filter, matches is matched by the filter `own`."""
    for place, level in enumerate(own):
        if level == HASH:
            return True
        if place == len(asked) or asked[place] == HASH:
            return False
        if level not in (PLUS, asked[place]) or (level != PLUS and asked[place] == PLUS):
            return False
    return len(own) == len(asked)


def overlaps(one: Levels, other: Levels) -> bool:
    """There is a topic that both filters match."""
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
    """Wildcards in the first level don't match `$SYS` and its like [MQTT-4.7.2-1]."""
    return level[:1] == b"$"


def tells_of_clients(filter: bytes) -> bool:
    """Whether a topic tells of client ids, user names and addresses, maybe among others."""
    return filter.startswith(b"$SYS/") and overlaps(tuple(filter.split(b"/")), _CLIENTS)


_CLIENTS: Final[Levels] = (b"$SYS", b"brokers", b"+", b"clients", b"#")

# --- who ------------------------------------------------------------------------------------------------------------

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def glob(wanted: str) -> Callable[[str], bool]:
    """A text, in which `*` stands for any letters and `?` for one."""
    if not _is_glob(wanted):
        return wanted.__eq__
    match = re.compile(fnmatch.translate(wanted.replace("[", "[[]"))).fullmatch
    return lambda text: match(text) is not None


def _is_glob(wanted: str) -> bool:
    return any(letter in wanted for letter in "*?")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(
            f"ipaddr {text!r} isn't an address or a network; for example 192.0.2.7 or 10.0.0.0/8"
        ) from None


def _is_in(host: str, networks: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in network for network in networks)


# --- what others say ------------------------------------------------------------------------------------------------


class _Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as EMQX has it in tokens and answers; ours is taken too. What isn't known here might be a condition."""

    permit: str | None = None
    permission: str | None = None
    action: str = "all"
    topic: str | None = None
    topics: Some[str] = ()
    qos: Some[int] | int = ()
    retain: bool | str | None = None
    username: str | None = None
    clientid: str | None = None
    ipaddr: Some[str] = ()


def claimed(value: object) -> Rules:
    """Rules in a token or in another service's answer: a list of rules, or `{"pub": [FILTER…], "sub": […], "all": […]}`
    of what is allowed. Raises ValueError: a client whose rules can't be read must not go without."""
    if isinstance(value, Mapping):
        if unknown := set(value) - {"pub", "sub", "all"}:
            raise ValueError(f"{', '.join(map(repr, sorted(map(str, unknown))))} is none of pub, sub, all")
        lists = msgspec.convert(value, dict[str, tuple[str, ...]])
        names = {"pub": "publish", "sub": "subscribe", "all": "all"}
        said = [
            {"permit": "allow", "action": names[name], "topics": topics} for name, topics in lists.items() if topics
        ]
        return meant([msgspec.convert(rule, RuleSettings) for rule in said])
    return meant([_own(rule) for rule in msgspec.convert(value, tuple[_Claimed, ...])])


def _own(rule: _Claimed) -> RuleSettings:
    topics = rule.topics if rule.topic is None else (*rule.topics, rule.topic)
    said = {
        "permit": rule.permit or rule.permission,
        "action": rule.action,
        "topics": topics,
        "qos": (rule.qos,) if isinstance(rule.qos, int) else rule.qos,
        "retain": {"all": None, "true": True, "false": False}.get(rule.retain, rule.retain)
        if isinstance(rule.retain, str)
        else rule.retain,
        "username": rule.username,
        "clientid": rule.clientid,
        "ipaddr": rule.ipaddr,
    }
    return msgspec.convert({name: value for name, value in said.items() if value != ()}, RuleSettings)
