"""Finds the access rules that may match: a trie of filter levels, per client or user. No I/O.

Invariants: every rule that matches is found. If the end of a filter depends on the client (`${clientid}`), the index
stores it with `#` instead.
"""

from __future__ import annotations

from typing import Final

PLUS: Final = b"+"
HASH: Final = b"#"
Levels = tuple[bytes, ...]
Who = tuple[str, str]
"""("clientid", CLIENT_ID) or ("username", USER_NAME)."""


class RuleIndex:
    """Maps filters to numbers. Numbers are in the order of the rules."""

    __slots__ = ("_by_who", "_of_all")

    def __init__(self) -> None:
        self._of_all = _Filters()
        self._by_who: dict[Who, _Filters] = {}

    def add(self, number: int, who: Who | None, levels: Levels, *, denies: bool) -> None:
        """`who` is the one client or user that the rule is about, or None for a rule about several."""
        of = self._of_all if who is None else self._by_who.setdefault(who, _Filters())
        of.add(number, levels, denies)

    def find(self, clientid: str, username: str, asked: Levels) -> tuple[list[int], int]:
        """The numbers of filters that may match, in order, and the number of steps of the search."""
        found: list[int] = []
        steps = self._of_all.find(asked, found)
        if self._by_who:
            for who in (("clientid", clientid), ("username", username)):
                theirs = self._by_who.get(who)
                if theirs is not None:
                    steps += theirs.find(asked, found)
        found.sort()
        return found, steps


class _Filters:
    """The filters of one client, of one user, or of all. An `allow` matches if it covers the requested filter, a `deny`
    if it overlaps it."""

    __slots__ = ("_allows", "_denials")

    def __init__(self) -> None:
        self._allows = _Node()
        self._denials = _Node()

    def add(self, number: int, levels: Levels, denies: bool) -> None:
        node = self._denials if denies else self._allows
        for level in levels:
            if level not in node.below:
                node.below[level] = _Node()
            node = node.below[level]
        node.numbers.append(number)

    def find(self, asked: Levels, found: list[int]) -> int:
        """Append the found numbers to `found`. Returns the number of nodes visited."""
        steps = _find(self._allows, asked, found, overlapping=False) if self._allows.below else 0
        return steps + (_find(self._denials, asked, found, overlapping=True) if self._denials.below else 0)


class _Node:
    """A node of the trie: the numbers of filters that end here, and the child nodes by level."""

    __slots__ = ("below", "numbers")

    def __init__(self) -> None:
        self.below: dict[bytes, _Node] = {}
        self.numbers: list[int] = []


def _find(root: _Node, asked: Levels, found: list[int], *, overlapping: bool) -> int:
    nodes, steps = [root], 0
    for level in asked:
        steps += len(nodes)
        if level == HASH and overlapping:
            return steps + _take_all(nodes, found)
        nodes = _down(nodes, level, found, overlapping)
        if not nodes:
            return steps
    for node in nodes:
        found += node.numbers
        if HASH in node.below:
            found += node.below[HASH].numbers
    return steps + len(nodes)


def _down(nodes: list[_Node], level: bytes, found: list[int], overlapping: bool) -> list[_Node]:
    """The child nodes that match this level. Filters that end in `#` here are appended to `found`."""
    deeper: list[_Node] = []
    for node in nodes:
        below = node.below
        if HASH in below:
            found += below[HASH].numbers
        if level == PLUS and overlapping:
            deeper += [child for name, child in below.items() if name != HASH]
            continue
        if PLUS in below and level != HASH:
            deeper.append(below[PLUS])
        if level in below and level not in (PLUS, HASH):
            deeper.append(below[level])
    return deeper


def _take_all(nodes: list[_Node], found: list[int]) -> int:
    steps = 0
    while nodes:
        node = nodes.pop()
        steps += 1
        found += node.numbers
        nodes += node.below.values()
    return steps
