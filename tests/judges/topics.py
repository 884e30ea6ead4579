"""Topics and filters, as MQTT's section 4.7 says, and FlockMQ's two prefixes of filters. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

SHARE: Final = "$share/"
EXCLUSIVE: Final = "$exclusive/"
_UNHEARD: Final = "-unheard"
_UNSAID: Final = "-unsaid"
_KNOWN_MAX: Final = 1 << 16


def unheard(prefix: str) -> str:
    """A prefix of which, while it is denied, only that is denied: to subscribe below it."""
    return prefix + _UNHEARD


def is_unheard(prefix: str) -> bool:
    return prefix.endswith(_UNHEARD)


def unsaid(prefix: str) -> str:
    """The same of publishing."""
    return prefix + _UNSAID


def is_unsaid(prefix: str) -> bool:
    return prefix.endswith(_UNSAID)


def denied_action(prefix: str) -> Literal["publish", "subscribe", "all"]:
    return "subscribe" if is_unheard(prefix) else "publish" if is_unsaid(prefix) else "all"


def is_shared(filter: str) -> bool:
    return filter.startswith(SHARE)


def topic_filter(filter: str) -> str:
    """What of it is held against topics."""
    if is_shared(filter):
        return filter.split("/", 2)[2]
    return filter.removeprefix(EXCLUSIVE)


@lru_cache(_KNOWN_MAX)
def matches(filter: str, topic: str) -> bool:
    levels, names = filter.split("/"), topic.split("/")
    if topic[:1] == "$" and levels[0] in ("+", "#"):
        return False
    for level, name in zip(levels, names, strict=False):
        if level == "#":
            return True
        if level not in ("+", name):
            return False
    return len(levels) == len(names) or (len(levels) == len(names) + 1 and levels[-1] == "#")


def overlap(one: str, other: str) -> bool:
    """Some topic matches both filters."""
    left, right = one.split("/"), other.split("/")
    for level, peer in zip(left, right, strict=False):
        if "#" in (level, peer):
            return True
        if level != peer and "+" not in (level, peer):
            return False
    longer = max(left, right, key=len)[min(len(left), len(right)) :]
    return not longer or longer == ["#"]


def below(prefix: str) -> str:
    """The filter of a topic and of what is below it."""
    return f"{prefix.rstrip('/')}/#"
