"""Finds the filters that match a topic: tuple-space search for frequent wildcard shapes, a tree for all others.

Filters are grouped by *shape*: the positions of their wildcards, including `#` and the number of levels before it. For
a *fast* shape, the index replaces the topic's levels by `+` where the shape has one, and looks the result up among the
filters of the shape. So a match costs one look-up per fast shape, however many filters there are, and a filter costs
one dict entry. Filters without wildcards share one look-up.

A hostile client could create 2^k shapes, and each match would pay for all of them. So at most `FAST_SHAPES_MAX` shapes
are fast: all shapes, while there are no more than that; otherwise those with at least `FAST_SHAPE_FILTERS` filters. A
shape with twice as many filters replaces the smallest fast one. Filters of other shapes are in a tree
(`routing.filter_tree`), where a topic with N levels takes at most 2^N paths, and only those that filters use. When a
shape becomes fast or slow, its filters move out of or into the tree, a few with each filter that is added, so that no
single call takes long.

Invariants: a shape exists exactly while a filter has it. No value is twice under one filter. The same calls in the same
order give the same lists. A topic that begins with `$` isn't matched by a filter that begins with a wildcard
[MQTT-4.7.2-1]. `a/#` matches `a` too (section 4.7.1.2).
"""

from __future__ import annotations

from typing import Final

from flockmq.bounds import FAST_SHAPE_FILTERS, FAST_SHAPES_MAX, SHAPE_MOVES
from flockmq.routing.filter_tree import FilterTree, TreeFilters, collect, joined, parted

_SLOW: Final = 0
_OPENING: Final = 1
_FAST: Final = 2
_CLOSING: Final = 3
_LITERALS: Final = bytes([byte for byte in range(256) if byte not in b"+#/"])


class Shape(TreeFilters):
    """The filters of one shape, with their values. Topics are looked up in them unless the shape is slow. `moving`:
    filters that may still be in the tree while the shape opens, or may not be there yet while it closes.

    `plus`: positions of `+`. `depth`: number of levels, before `#` if `multi`.
    """

    __slots__ = ("depth", "moving", "multi", "plus", "state")

    def __init__(self, signature: bytes) -> None:
        super().__init__()
        levels = signature.split(b"/")
        self.multi = levels[-1] == b"#"
        self.depth = len(levels) - 1 if self.multi else len(levels)
        self.plus = [position for position, level in enumerate(levels) if level == b"+"]
        self.state: int = _SLOW
        self.moving: list[bytes] = []

    def wild_first(self) -> bool:
        return self.depth == 0 or (len(self.plus) > 0 and self.plus[0] == 0)

    def covers(self, levels: int) -> bool:
        """True if a topic with this many levels can match."""
        return levels >= self.depth if self.multi else levels == self.depth

    def key(self, levels: list[bytes]) -> bytes:
        """The only filter of this shape that can match a topic with these levels."""
        parts = levels[: self.depth]
        for position in self.plus:
            parts[position] = b"+"
        if self.multi:
            parts.append(b"#")
        return b"/".join(parts)


class FilterIndex:
    """Filters, each with a set of values. `dollars`: number of filters that begin with `$`. `fast_shapes` bounds the
    cost of a match; if there are more shapes, only those with at least `fast_filters` filters are fast.
    """

    def __init__(self, fast_shapes: int = FAST_SHAPES_MAX, fast_filters: int = FAST_SHAPE_FILTERS) -> None:
        self.dollars: int = 0
        self._fast_shapes = fast_shapes
        self._fast_filters = fast_filters
        self._filters: int = 0
        self._plain: dict[bytes, object] = {}  # filters without wildcards
        self._shapes: dict[bytes, Shape] = {}
        self._looked_up: list[Shape] = []  # those that aren't slow
        self._moving: list[Shape] = []  # those that open or close
        self._tree = FilterTree()
        self._plans: dict[int, list[Shape]] = {}  # number of topic levels (negative: begins with $) → shapes to look up

    def __len__(self) -> int:
        """The number of filters."""
        return self._filters

    def __contains__(self, topic_filter: bytes) -> bool:
        return self._present(topic_filter) is not None

    @property
    def shapes(self) -> int:
        """The number of shapes."""
        return len(self._shapes)

    def add(self, topic_filter: bytes, value: object) -> bool:
        """Add a value under a valid filter. Returns True if the filter is new. An existing value stays single."""
        if self._moving:
            self._move_some()
        if not has_wildcard(topic_filter):
            is_new = _put(self._plain, topic_filter, value)
        else:
            is_new = self._add_wild(topic_filter, value)
        if is_new:
            self._filters += 1
            if topic_filter[:1] == b"$":
                self.dollars += 1
        return is_new

    def remove(self, topic_filter: bytes, value: object) -> bool:
        """Remove a value. Returns True if its filter was removed with it. Ignores unknown values."""
        if not has_wildcard(topic_filter):
            is_gone = _take(self._plain, topic_filter, value)
        else:
            is_gone = self._remove_wild(topic_filter, value)
        if is_gone:
            self._filters -= 1
            if topic_filter[:1] == b"$":
                self.dollars -= 1
        return is_gone

    def values(self, topic_filter: bytes) -> list[object]:
        """The values under exactly this filter, in insertion order."""
        found: list[object] = []
        present = self._present(topic_filter)
        if present is not None:
            collect(present, found)
        return found

    def match(self, topic: bytes) -> list[object]:
        """The values of all filters that match `topic`: first of the topic itself, then of fast shapes by depth, then
        of all others.

        A value under several matching filters is returned once for each.
        """
        found: list[object] = []
        present = self._plain.get(topic)
        if present is not None:
            collect(present, found)
        if not self._shapes:
            return found
        levels = topic.split(b"/")
        dollar = topic[:1] == b"$"
        for shape in self._plan(len(levels), dollar):
            present = shape.held.get(shape.key(levels))
            if present is not None:
                collect(present, found)
        self._tree.match(levels, dollar, found)
        return found

    def _present(self, topic_filter: bytes) -> object:
        """The values under the filter; None: there are none."""
        if not has_wildcard(topic_filter):
            return self._plain.get(topic_filter)
        shape = self._shapes.get(shape_of(topic_filter))
        return None if shape is None else shape.held.get(topic_filter)

    def _plan(self, levels: int, dollar: bool) -> list[Shape]:
        plan = self._plans.get(-levels if dollar else levels)
        if plan is None:
            plan = [s for s in self._looked_up if s.covers(levels) and not (dollar and s.wild_first())]
            plan.sort(key=_rank)
            self._plans[-levels if dollar else levels] = plan
        return plan

    # Filters with wildcards.

    def _add_wild(self, topic_filter: bytes, value: object) -> bool:
        signature = shape_of(topic_filter)
        shape = self._shapes.get(signature)
        if shape is None:
            shape = self._begin(signature)
        if not _put(shape.held, topic_filter, value):
            return False
        if shape.state in (_SLOW, _CLOSING):
            self._tree.insert(topic_filter, shape)
            self._look_at(shape)
        return True

    def _remove_wild(self, topic_filter: bytes, value: object) -> bool:
        signature = shape_of(topic_filter)
        shape = self._shapes.get(signature)
        if shape is None or not _take(shape.held, topic_filter, value):
            return False
        if shape.state != _FAST:
            self._tree.delete(topic_filter)
        if not shape.held:
            self._end(signature, shape)
        elif 2 * len(shape.held) < self._fast_filters and len(self._shapes) > self._fast_shapes and _is_fast(shape):
            self._close(shape)
        return True

    # Which shapes are fast.

    def _begin(self, signature: bytes) -> Shape:
        shape = self._shapes[signature] = Shape(signature)
        if len(self._shapes) <= self._fast_shapes:
            self._open(shape)
        elif len(self._shapes) == self._fast_shapes + 1:
            for other in self._looked_up:
                if len(other.held) < self._fast_filters and _is_fast(other):
                    self._close(other)
        return shape

    def _look_at(self, shape: Shape) -> None:
        """A filter was added to the tree. Each time a shape's size reaches a power of two, decide whether it becomes
        fast.
        """
        filters = len(shape.held)
        if filters < self._fast_filters or filters & (filters - 1):
            return
        fast = [other for other in self._looked_up if _is_fast(other)]
        if len(fast) >= self._fast_shapes:
            smallest = min(fast, key=_filters)
            if 2 * len(smallest.held) > filters:
                return
            self._close(smallest)
        self._open(shape)

    def _open(self, shape: Shape) -> None:
        """The shape is looked up from now on; what is left of it in the tree is ignored."""
        if shape.state == _SLOW:
            self._looked_up.append(shape)
            self._plans.clear()
        self._move(shape, _OPENING)

    def _close(self, shape: Shape) -> None:
        """The shape is looked up until all its filters are in the tree."""
        self._move(shape, _CLOSING)

    def _end(self, signature: bytes, shape: Shape) -> None:
        """Its last filter was removed."""
        del self._shapes[signature]
        if shape in self._moving:
            self._moving.remove(shape)
        self._forget(shape)

    def _forget(self, shape: Shape) -> None:
        """The shape is no longer looked up."""
        shape.counts = True
        if shape.state != _SLOW:
            shape.state = _SLOW
            self._looked_up.remove(shape)
            self._plans.clear()

    def _move(self, shape: Shape, state: int) -> None:
        shape.state = state
        shape.counts = False
        shape.moving = list(shape.held)
        if shape not in self._moving:
            self._moving.append(shape)

    def _move_some(self) -> None:
        """Move some filters of a shape that opens or closes out of or into the tree."""
        shape = self._moving[-1]
        for _ in range(min(SHAPE_MOVES, len(shape.moving))):
            topic_filter = shape.moving.pop()
            if shape.state == _OPENING:
                self._tree.delete(topic_filter)
            elif topic_filter in shape.held:
                self._tree.insert(topic_filter, shape)
        if not shape.moving:
            self._moving.pop()
            if shape.state == _OPENING:
                shape.state = _FAST
            else:
                self._forget(shape)


def has_wildcard(topic_filter: bytes) -> bool:
    return topic_filter.find(b"+") >= 0 or topic_filter.find(b"#") >= 0


def shape_of(topic_filter: bytes) -> bytes:
    """The filter with its literal levels emptied: equal for filters of one shape. In one go, whatever the number of its
    levels is: in a valid filter no literal level has a wildcard.
    """
    return topic_filter.translate(None, _LITERALS)


def _rank(shape: Shape) -> tuple[int, bool, list[int]]:
    return shape.depth, shape.multi, shape.plus


def _filters(shape: Shape) -> int:
    return len(shape.held)


def _is_fast(shape: Shape) -> bool:
    return shape.state in (_OPENING, _FAST)


def _put(filters: dict[bytes, object], topic_filter: bytes, value: object) -> bool:
    """Returns True if the filter is new."""
    present = filters.get(topic_filter)
    filters[topic_filter] = value if present is None else joined(present, value)
    return present is None


def _take(filters: dict[bytes, object], topic_filter: bytes, value: object) -> bool:
    """Returns True if the filter was removed."""
    present = filters.get(topic_filter)
    if present is None:
        return False
    left = parted(present, value)
    if left is None:
        del filters[topic_filter]
    else:
        filters[topic_filter] = left
    return left is None
