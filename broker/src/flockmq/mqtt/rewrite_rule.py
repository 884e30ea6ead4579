"""One topic rewrite rule, and the template of its destination topic. No I/O.

Invariants: a client's own name fills exactly one level of a topic, without wildcards, and can't create a topic that
begins with `$`. If a rule would do that, the result is b"" and the request is refused: leaving the topic unchanged
could give the client what the rule should prevent. Matched groups lead to `$SYS` and the like only if the topic or the
rule does.

Expressions are RE2's: matching takes time proportional to the topic's length (at most 65,535 bytes). So there are no
look-arounds and no back-references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import re2  # type: ignore[import-untyped]

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.topics import check_filter

_VARIABLE: Final = re.compile(r"\$(?:([0-9]+)|\{([^}]*)\})")
CLIENT_ID: Final = "clientid"
USER_NAME: Final = "username"
HOST: Final = "host"
CLIENT_NAMES: Final = (CLIENT_ID, USER_NAME, HOST)
"""Variables that are known for every client."""


class _Match(Protocol):
    def groups(self, default: str) -> Sequence[str]: ...


class TopicTemplate:
    """A topic with variables: `$1` to `$groups`, and `${name}` for each of `names`. Raises ValueError."""

    __slots__ = ("_parts", "names")

    def __init__(self, text: str, names: Sequence[str], groups: int = 0) -> None:
        self._parts: list[tuple[str, str]] = []  # literal text, and the variable after it or ""
        self.names: list[str] = []
        at = 0
        for found in _VARIABLE.finditer(text):
            group, name = found[1], found[2]
            if group is not None and not 1 <= int(group) <= groups:
                raise ValueError(f"{found[0]}: the regular expression has {groups} groups")
            if name is not None and name not in names:
                raise ValueError(f"{found[0]}: there is {', '.join(f'${{{known}}}' for known in names)}")
            self._parts.append((text[at : found.start()], group or name))
            if name is not None:
                self.names.append(name)
            at = found.end()
        self._parts.append((text[at:], ""))

    def fill(self, values: dict[str, str]) -> bytes:
        """The topic; b"" if the value of a name is empty, begins with `$`, or isn't a single topic level."""
        for name in self.names:
            value = values[name]
            if not value or value[0] == "$" or "/" in value or "+" in value or "#" in value:
                return b""
        return "".join([literal + (values[variable] if variable else "") for literal, variable in self._parts]).encode()

    def begins_with_dollar(self) -> bool:
        return self._parts[0][0][:1] == "$"


class RewriteRule:
    """`source`: a topic filter. Raises ValueError for an invalid rule; the text names the key."""

    __slots__ = ("_search", "source", "template")

    def __init__(self, source_topic: str, pattern: str, dest_topic: str) -> None:
        self.source = source_topic.encode()
        try:
            check_filter(self.source)
        except PacketError as error:
            raise ValueError(f"source_topic {source_topic!r}: {error}") from None
        self._search, groups = _compiled(pattern)
        try:
            self.template = TopicTemplate(dest_topic, (CLIENT_ID, USER_NAME), groups)
        except ValueError as wrong:
            raise ValueError(f"dest_topic {dest_topic!r}: {wrong}") from None

    def apply(self, topic: bytes, client_id: bytes, username: bytes) -> bytes:
        """The rewritten topic; the same topic if the expression doesn't match; or b"" (refused)."""
        found = self._search(topic.decode())
        if found is None:
            return topic
        values = {CLIENT_ID: client_id.decode(), USER_NAME: username.decode()}
        for number, text in enumerate(found.groups("")):
            values[str(number + 1)] = text
        made = self.template.fill(values)
        leads_astray = made[:1] == b"$" and topic[:1] != b"$" and not self.template.begins_with_dollar()
        return b"" if leads_astray else made


def _compiled(pattern: str) -> tuple[Callable[[str], _Match | None], int]:
    """The search function for an expression, and the number of its groups. Raises ValueError."""
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"re {pattern!r}: not an expression of RE2: {_text(error)}") from None
    return compiled.search, compiled.groups


def _text(error: Exception) -> str:
    """RE2's error text, which is bytes."""
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
