"""Topic names and topic filters (MQTT 5.0 sections 4.7 and 4.8.2), and FlockMQ's prefixes for them.

Both are `bytes` everywhere on the data path. After `check_topic_name` or `check_filter` they are valid: UTF-8 without
U+0000, 1 to 65,535 bytes, at most TOPIC_MAX_LEVELS levels, wildcards only where MQTT allows them. `$share/group/filter`
is a shared subscription in every protocol version, `$exclusive/filter` a subscription that only one client may have,
`$delayed/seconds/topic` a delayed message. Rules, rewriting and plugins use what `unwrap` finds after these prefixes.
"""

from __future__ import annotations

from typing import Final

from flockmq.bounds import TOPIC_MAX_LEVELS
from flockmq.mqtt.errors import PacketError, malformed
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.wire import STRING_MAX_BYTES, check_text

MAX_LEVELS: Final = TOPIC_MAX_LEVELS
_SYSTEM: Final = b"$SYS/"
_SHARE: Final = b"$share/"
_EXCLUSIVE: Final = b"$exclusive/"
DELAYED: Final = b"$delayed/"


def check_topic_name(topic: bytes, statement: str = "MQTT-4.7.0-1") -> None:
    """Raise PacketError unless `topic` is a valid topic name. `statement`: cited if it has wildcards."""
    _check_length(topic, "topic name")
    check_text(topic, "topic name")
    if topic.find(b"+") >= 0 or topic.find(b"#") >= 0:  # `in` raises and drops an exception for each look
        raise malformed("topic name with a wildcard", statement)
    if topic.count(b"/") >= MAX_LEVELS:
        raise PacketError(Reason.TOPIC_NAME_INVALID, "section 4.7.3", f"topic name of more than {MAX_LEVELS} levels")


def check_filter(topic_filter: bytes) -> None:
    """Raise PacketError unless `topic_filter`, shared or not, is valid."""
    _check_length(topic_filter, "topic filter")
    check_text(topic_filter, "topic filter")
    if topic_filter[:7] == _SHARE:
        share, inner = split_share(topic_filter)
        if not share:
            raise malformed("shared subscription with an empty ShareName", "MQTT-4.8.2-1")
        if b"+" in share or b"#" in share:
            raise malformed("ShareName with a wildcard", "MQTT-4.8.2-2")
        if not inner:
            raise malformed("shared subscription without a topic filter", "MQTT-4.8.2-2")
        _check_levels(inner)
    elif is_exclusive(topic_filter):
        inner = matching(topic_filter)
        if not inner or is_shared(inner) or is_exclusive(inner):
            raise PacketError(
                Reason.TOPIC_FILTER_INVALID, "section 4.7.3", "exclusive subscription without a plain topic filter"
            )
        _check_levels(inner)
    else:
        _check_levels(topic_filter)


def is_system(topic: bytes) -> bool:
    """True for `$SYS/…`, the broker's own topics."""
    return topic[:5] == _SYSTEM


def is_reserved(topic: bytes) -> bool:
    """True if the topic is the broker's own, or begins with a prefix of filters."""
    return topic[:1] == b"$" and (is_system(topic) or is_shared(topic) or is_exclusive(topic))


def is_unpublishable(topic: bytes) -> bool:
    """True if no client may publish there: of all topics that begin with `$`, clients may use only `$delayed/…`."""
    return topic[:1] == b"$" and not is_delayed(topic)


def is_delayed(topic: bytes) -> bool:
    return topic[:9] == DELAYED


def is_shared(topic_filter: bytes) -> bool:
    return topic_filter[:7] == _SHARE


def is_exclusive(topic_filter: bytes) -> bool:
    return topic_filter[:11] == _EXCLUSIVE


def exclusively(topic_filter: bytes) -> bytes:
    """The same filter as an exclusive subscription."""
    return _EXCLUSIVE + topic_filter


def matching(topic_filter: bytes) -> bytes:
    """The part of a filter that is matched with topics: without `$share/group/` or `$exclusive/`."""
    if topic_filter[:1] != b"$":
        return topic_filter
    return topic_filter[11:] if is_exclusive(topic_filter) else split_share(topic_filter)[1]


def unwrap(name: bytes) -> tuple[bytes, bytes]:
    """A topic or filter as (prefixes, rest). Prefixes are `$share/group/`, `$exclusive/` and `$delayed/seconds/`, maybe
    nested.
    """
    at = 0
    while name[at : at + 1] == b"$":
        if name[at : at + 11] == _EXCLUSIVE:
            behind = at + 11
        elif name[at : at + 7] == _SHARE:
            behind = name.find(b"/", at + 7) + 1
        elif name[at : at + 9] == DELAYED:
            behind = name.find(b"/", at + 9) + 1
        else:
            break
        if not 0 < behind < len(name):
            break
        at = behind
    return name[:at], name[at:]


def split_share(topic_filter: bytes) -> tuple[bytes, bytes]:
    """`$share/group/filter` as (group, filter); any other filter as (b"", filter)."""
    if topic_filter[:7] != _SHARE:
        return b"", topic_filter
    share, _, inner = topic_filter[7:].partition(b"/")
    return share, inner


def _check_length(topic: bytes, what: str) -> None:
    if not topic:
        raise malformed(f"{what} of no characters", "MQTT-4.7.3-1")
    if len(topic) > STRING_MAX_BYTES:
        raise malformed(f"{what} of {len(topic)} bytes", "MQTT-4.7.3-3")


def _check_levels(topic_filter: bytes) -> None:
    """Looks at all levels at once, because a packet has up to half a million; one by one only at those of a filter that
    is refused.
    """
    if topic_filter.count(b"/") >= MAX_LEVELS:
        raise PacketError(
            Reason.TOPIC_FILTER_INVALID, "section 4.7.3", f"topic filter of more than {MAX_LEVELS} levels"
        )
    if not _are_wildcards_whole(topic_filter):
        raise _misplaced_wildcard(topic_filter.split(b"/"))


def _are_wildcards_whole(topic_filter: bytes) -> bool:
    """True if each wildcard is a whole level, and `#` the last one."""
    multi = topic_filter.find(b"#")
    if multi >= 0 and (multi != len(topic_filter) - 1 or topic_filter[-2:] not in (b"#", b"/#")):
        return False
    pluses = topic_filter.count(b"+")
    if not pluses:
        return True
    # `count` finds what doesn't overlap, so that each level needs slashes of its own.
    apart = b"/" + topic_filter.replace(b"/", b"//") + b"/"
    return apart.count(b"/+/") == pluses


def _misplaced_wildcard(levels: list[bytes]) -> PacketError:
    """What is wrong with a filter of these levels: the first error."""
    last = len(levels) - 1
    for position, level in enumerate(levels):
        if b"#" in level and (level != b"#" or position != last):
            break
        if b"+" in level and level != b"+":
            return malformed("'+' that isn't a whole level of a topic filter", "MQTT-4.7.1-2")
    return malformed("'#' that isn't the whole last level of a topic filter", "MQTT-4.7.1-1")
