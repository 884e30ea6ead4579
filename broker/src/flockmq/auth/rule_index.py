"""Which of many rules might fit: those about this client, by the levels with which their filters begin. Pure.

What always holds: what isn't found can't fit. A filter matches, covers and overlaps nothing but what begins with its
own literal levels, those before the first wildcard or placeholder, as far as both have some.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

PLUS: Final = b"+"
HASH: Final = b"#"
Levels = tuple[bytes, ...]
Who = tuple[str, str]
"""("clientid", this very one), or ("username", …)."""


class RuleIndex:
    """Numbers of filters in the order of their rules."""

    __slots__ = ("_by_who", "_of_all")

    def __init__(self) -> None:
        self._of_all = _Prefixes()
        self._by_who: dict[Who, _Prefixes] = {}

    def add(self, number: int, who: Who | None, begins: Levels, *, denies: bool) -> None:
        """`who`: nobody else is meant; `begins`: its literal levels. Each number is larger than the one before."""
        of = self._of_all if who is None else self._by_who.setdefault(who, _Prefixes())
        of.add(number, begins, denies)

    def find(self, clientid: str, username: str, asked: Levels, *, overlapping: bool) -> list[int]:
        """In their order. `overlapping`: a denial below `asked`, a filter, might fit, too."""
        literal = literal_levels(asked)
        is_wild = overlapping and len(literal) < len(asked)
        found: list[int] = []
        self._of_all.find(literal, is_wild, found)
        if self._by_who:
            for who in (("clientid", clientid), ("username", username)):
                theirs = self._by_who.get(who)
                if theirs is not None:
                    theirs.find(literal, is_wild, found)
        found.sort()
        return found


class _Prefixes:
    """Numbers by literal levels; those of denials stand in order, too."""

    __slots__ = ("_at", "_denials", "_denied", "_depths")

    def __init__(self) -> None:
        self._at: dict[Levels, list[int]] = {}
        self._depths: list[int] = []
        """How many levels there are in `_at`, each number once, in order."""
        self._denied: dict[Levels, list[int]] = {}
        self._denials: list[Levels] | None = None
        """The keys of `_denied`, sorted when they are first needed."""

    def add(self, number: int, begins: Levels, denies: bool) -> None:
        self._at.setdefault(begins, []).append(number)
        if len(begins) not in self._depths:
            self._depths = sorted([*self._depths, len(begins)])
        if denies:
            self._denied.setdefault(begins, []).append(number)

    def find(self, literal: Levels, is_wild: bool, found: list[int]) -> None:
        for depth in self._depths:
            if depth > len(literal):
                break
            found += self._at.get(literal[:depth], ())
        if is_wild and self._denied:
            self._find_below(literal, found)

    def _find_below(self, literal: Levels, found: list[int]) -> None:
        if self._denials is None:
            self._denials = sorted(self._denied)
        denials = self._denials
        for place in range(bisect_right(denials, literal), len(denials)):
            if denials[place][: len(literal)] != literal:
                break
            found += self._denied[denials[place]]


def literal_levels(filter: Sequence[bytes]) -> Levels:
    """Those before the first wildcard."""
    levels = tuple(filter)
    for place, level in enumerate(levels):
        if level in (PLUS, HASH):
            return levels[:place]
    return levels
