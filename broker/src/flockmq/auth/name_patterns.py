"""Patterns of client ids, user names and listeners: `*` matches any text, and `?` one character. No I/O.

Clients choose the texts, and who has an API key of any role chooses patterns. So nothing is tried again after a part of
a pattern has matched, as a regular expression would.

Invariant: a match takes time in proportion to the text, whatever the pattern is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flockmq.bounds import NAME_PATTERN_MAX_CHARS

ANY: Final = "*"
ONE: Final = "?"


def is_pattern(wanted: str) -> bool:
    return ANY in wanted or ONE in wanted


def check_length(pattern: str) -> None:
    """Raises ValueError for a pattern of more than NAME_PATTERN_MAX_CHARS. A name without `*` and `?` may be longer."""
    if is_pattern(pattern) and len(pattern) > NAME_PATTERN_MAX_CHARS:
        raise ValueError(
            f"has {len(pattern)} characters; a pattern may have {NAME_PATTERN_MAX_CHARS}: say its beginning and '*'"
        )


def glob(wanted: str) -> Callable[[str], bool]:
    """Create a matcher of whole texts."""
    if not is_pattern(wanted):
        return wanted.__eq__
    first, *others = (_WithOne(part) if ONE in part else _Literal(part) for part in wanted.split(ANY))
    if not others:
        return lambda text: len(text) == first.length and first.is_at(text, 0)
    last = others.pop()
    return lambda text: _are_in_order(first, others, last, text)


class _Literal:
    """A part of a pattern between two `*`, without `?`."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.length: Final = len(part)

    def is_at(self, text: str, at: int) -> bool:
        return text.startswith(self._part, at)

    def after_first(self, text: str, at: int, end: int) -> int:
        """The end of the first match within `text[at:end]`; -1 if there is none."""
        found = text.find(self._part, at, end)
        return -1 if found < 0 else found + self.length


class _WithOne:
    """A part of a pattern between two `*`, with `?` in it.

    `after_first` is the shift-and algorithm: bit i of `matched` is set if the characters just read match the first i+1
    of the part. So each character of the text is read once, for all places where a match may have begun.
    """

    def __init__(self, part: str) -> None:
        self.length: Final = len(part)
        self._others = sum(1 << place for place, letter in enumerate(part) if letter == ONE)
        """The places of the part that match a character that isn't in it."""
        self._places = dict.fromkeys(part, self._others)
        """Character → the places of the part that match it."""
        for place, letter in enumerate(part):
            if letter != ONE:
                self._places[letter] |= 1 << place

    def is_at(self, text: str, at: int) -> bool:
        return self.after_first(text, at, at + self.length) >= 0

    def after_first(self, text: str, at: int, end: int) -> int:
        """The end of the first match within `text[at:end]`; -1 if there is none."""
        matched, whole = 0, 1 << (self.length - 1)
        for place, letter in enumerate(text[at:end], start=at + 1):
            matched = (matched << 1 | 1) & self._places.get(letter, self._others)
            if matched & whole:
                return place
        return -1


_Part = _Literal | _WithOne


def _are_in_order(first: _Part, others: Sequence[_Part], last: _Part, text: str) -> bool:
    """Whether the text begins with `first`, ends with `last`, and has the others in this order between them."""
    at, end = first.length, len(text) - last.length
    if at > end or not (first.is_at(text, 0) and last.is_at(text, end)):
        return False
    for part in others:
        at = part.after_first(text, at, end)
        if at < 0:
            return False
    return True
