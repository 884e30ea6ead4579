"""A radix tree of filter levels, for filters whose shape few others have.

A topic descends by its own levels and by `+`. So a match costs what the tree has on its paths, however many other
filters and shapes there are. A branch exists only where filters differ, and knows how many levels the filters below it
have: a topic that is too short or too long for all of them isn't followed further.

 a/+/c, a/+/d/#, a/+/d/e     Branch a/+/ ┬ c ── Leaf a/+/c
                                         └ d ── Branch ┬ # ── Leaf a/+/d/#
                                                       └ e ── Leaf a/+/d/e

Invariants: a branch has at least two children, so there are fewer branches than filters. The same filters make the same
tree, except for what branches remember of removed filters.
"""

from __future__ import annotations

from typing import Final

_PLUS: Final = b"+"
_HASH: Final = b"#"
_END: Final = b"/"
"""The end mark of a filter without `#`; no level can be equal to it."""
_NONE: Final = 1 << 30


class TreeNode:
    """A branch or a leaf."""

    __slots__ = ()


class TreeFilters:
    """Filters with their values (`joined`), of which some are in the tree. Those in the tree match only
    if `counts`.
    """

    __slots__ = ("counts", "held")

    def __init__(self) -> None:
        self.held: dict[bytes, object] = {}
        self.counts: bool = True


class Leaf(TreeNode):
    """A filter, and the object that holds its values."""

    __slots__ = ("filter", "owner")

    def __init__(self, topic_filter: bytes, owner: TreeFilters) -> None:
        self.filter = topic_filter
        self.owner = owner

    def collect(self, found: list[object]) -> None:
        if self.owner.counts:
            collect(self.owner.held[self.filter], found)


class Branch(TreeNode):
    """`skip`: levels that all filters below have in common here. `children`: by the level after them. `depths`: bit N
    is set if there is a filter with N levels. `least`: the smallest number of levels before a `#`.
    """

    __slots__ = ("children", "depths", "least", "skip")

    def __init__(self, skip: list[bytes]) -> None:
        self.skip = skip
        self.children: dict[bytes, TreeNode] = {}
        self.depths: int = 0
        self.least: int = _NONE

    def note(self, levels: list[bytes]) -> None:
        """A filter with these levels is below."""
        if levels[-1] == _END:
            self.depths |= 1 << len(levels) - 1
        else:
            self.least = min(self.least, len(levels) - 1)


class FilterTree:
    """Valid filters, each once. `_ends`: number of levels → number of filters. `_hashes`: the same for levels before a
    `#`. `_depths` and `_least`: as in a branch, but exact.
    """

    __slots__ = ("_depths", "_ends", "_hashes", "_least", "_root")

    def __init__(self) -> None:
        self._root: TreeNode | None = None
        self._ends: dict[int, int] = {}
        self._hashes: dict[int, int] = {}
        self._depths: int = 0
        self._least: int = _NONE

    def is_empty(self) -> bool:
        return self._root is None

    def insert(self, topic_filter: bytes, owner: TreeFilters) -> None:
        """Insert a filter; it may be here already, with the same owner."""
        levels = _levels(topic_filter)
        leaf = Leaf(topic_filter, owner)
        parent: Branch | None = None
        node, start = self._root, 0
        while isinstance(node, Branch):
            same = _same(node.skip, 0, levels, start)
            if same < len(node.skip):
                break
            node.note(levels)
            start += same
            parent, node = node, node.children.get(levels[start])
            start += 1
        if isinstance(node, Leaf) and node.filter == topic_filter:
            return
        if node is not None:
            node = _parted(node, leaf, levels, start)
        self._place(parent, levels[start - 1], leaf if node is None else node)
        self._count(levels, 1)

    def delete(self, topic_filter: bytes) -> None:
        """Delete a filter, if it is here."""
        levels = _levels(topic_filter)
        above: Branch | None = None
        parent: Branch | None = None
        node, start, above_at = self._root, 0, 0
        while isinstance(node, Branch):
            above, above_at, parent = parent, start - 1, node
            start += len(node.skip)
            if start >= len(levels):
                return
            node = node.children.get(levels[start])
            start += 1
        if not isinstance(node, Leaf) or node.filter != topic_filter:
            return
        self._count(levels, -1)
        if parent is None:
            self._root = None
            return
        del parent.children[levels[start - 1]]
        if len(parent.children) == 1:
            self._place(above, levels[above_at], _only_child(parent))

    def _place(self, parent: Branch | None, level: bytes, node: TreeNode) -> None:
        if parent is None:
            self._root = node
        else:
            parent.children[level] = node

    def _count(self, levels: list[bytes], change: int) -> None:
        depth = len(levels) - 1
        counts = self._ends if levels[-1] == _END else self._hashes
        known = counts.get(depth, 0)
        counts[depth] = known + change
        if known and known + change:
            return
        if not counts[depth]:
            del counts[depth]
        self._least = min(self._hashes, default=_NONE)
        self._depths = 0
        for each in self._ends:
            self._depths |= 1 << each

    def match(self, topic: list[bytes], dollar: bool, found: list[object]) -> None:
        """Add the values of all filters that match the topic with these levels. `dollar`: the topic begins with `$`."""
        count = len(topic)
        if self._root is not None and (self._least <= count or self._depths >> count & 1):
            _match(self._root, 0, topic, dollar, found)


def _match(node: TreeNode, start: int, topic: list[bytes], dollar: bool, found: list[object]) -> None:
    """`start`: number of topic levels that were compared already."""
    if isinstance(node, Leaf):
        if _fits(node.filter, start, topic, dollar):
            node.collect(found)
        return
    assert isinstance(node, Branch)
    count = len(topic)
    if node.least > count and not node.depths >> count & 1:
        return
    for wanted in node.skip:
        if start >= count or (wanted != topic[start] and (wanted != _PLUS or (dollar and start == 0))):
            return
        start += 1
    children = node.children
    hides_wildcards = dollar and start == 0
    if not hides_wildcards:
        child = children.get(_HASH)
        if isinstance(child, Leaf):
            child.collect(found)
    if start == count:
        child = children.get(_END)
        if isinstance(child, Leaf):
            child.collect(found)
        return
    level = topic[start]
    if level not in (_PLUS, _HASH):  # For a look-up of filters instead of topics: it finds the filters that cover them.
        child = children.get(level)
        if child is not None:
            _match(child, start + 1, topic, dollar, found)
    if not hides_wildcards:
        child = children.get(_PLUS)
        if child is not None:
            _match(child, start + 1, topic, dollar, found)


def _fits(topic_filter: bytes, start: int, topic: list[bytes], dollar: bool) -> bool:
    """True if the filter matches the topic; its first `start` levels match already."""
    levels = topic_filter.split(b"/")
    count = len(topic)
    for position in range(start, len(levels)):
        wanted = levels[position]
        if dollar and position == 0 and wanted in (_PLUS, _HASH):
            return False
        if wanted == _HASH:
            return True
        if position >= count or wanted not in (_PLUS, topic[position]):
            return False
    return len(levels) == count


def _levels(topic_filter: bytes) -> list[bytes]:
    """The levels with an end mark, so that no filter's levels are a prefix of another's."""
    levels = topic_filter.split(b"/")
    if levels[-1] != _HASH:
        levels.append(_END)
    return levels


def _same(one: list[bytes], one_at: int, other: list[bytes], other_at: int) -> int:
    """The number of equal levels from there on."""
    most = min(len(one) - one_at, len(other) - other_at)
    same = 0
    while same < most and one[one_at + same] == other[other_at + same]:
        same += 1
    return same


def _parted(node: TreeNode, leaf: Leaf, levels: list[bytes], start: int) -> Branch:
    """A new branch that replaces a node, because the leaf's filter differs from the node's somewhere after `start`."""
    if isinstance(node, Branch):
        same = _same(node.skip, 0, levels, start)
        branch = Branch(node.skip[:same])
        branch.depths, branch.least = node.depths, node.least
        branch.children[node.skip[same]] = node
        node.skip = node.skip[same + 1 :]
    else:
        assert isinstance(node, Leaf)
        others = _levels(node.filter)
        same = _same(others, start, levels, start)
        branch = Branch(levels[start : start + same])
        branch.note(others)
        branch.children[others[start + same]] = node
    branch.note(levels)
    branch.children[levels[start + same]] = leaf
    return branch


def _only_child(branch: Branch) -> TreeNode:
    """The node that replaces a branch with only one child left."""
    ((level, child),) = branch.children.items()
    if isinstance(child, Branch):
        child.skip = [*branch.skip, level, *child.skip]
    return child


_LIST_MAX: Final = 8


def joined(present: object, value: object) -> object:
    """Add a value; an existing one stays single."""
    if isinstance(present, dict):
        present[value] = None
    elif isinstance(present, list):
        if value not in present:
            if len(present) == _LIST_MAX:
                return dict.fromkeys([*present, value])
            present.append(value)
    elif present != value:
        return [present, value]
    return present


def parted(present: object, value: object) -> object:
    """Remove a value; None: no value is left."""
    if isinstance(present, dict):
        present.pop(value, None)
        return next(iter(present)) if len(present) == 1 else present
    if isinstance(present, list):
        if value in present:
            present.remove(value)
        return present[0] if len(present) == 1 else present
    return None if present == value else present


def collect(present: object, found: list[object]) -> None:
    """Append the values to `found`, in insertion order."""
    if isinstance(present, (list, dict)):
        found.extend(present)
    else:
        found.append(present)
