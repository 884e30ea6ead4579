"""The keys of a table in order, so that any node can list millions of them page by page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Generic, Self, TypeVar

from sortedcontainers import SortedSet

K = TypeVar("K", str, bytes, tuple[str, str])


class SortedKeys(Generic[K]):
    """A TableListener."""

    def __init__(self) -> None:
        self._keys: SortedSet[K] = SortedSet()

    def __len__(self) -> int:
        return len(self._keys)

    def page(self, after: K | None, limit: int) -> list[K]:
        """The first `limit` keys after this one."""
        keys: Iterator[K] = self._keys.irange(minimum=after, inclusive=(False, False))
        return list(islice(keys, limit))

    def count(self, first: K, last: K) -> int:
        """How many there are from `first` to `last`, both included."""
        return self._keys.bisect_right(last) - self._keys.bisect_left(first)

    def page_behind(self, first: K, skipped: int, limit: int) -> list[K]:
        """The first `limit` keys from `first` on, without the first `skipped` of these."""
        begin = self._keys.bisect_left(first) + skipped
        return list(self._keys.islice(begin, begin + limit))

    def page_back(self, before: K | None, limit: int) -> list[K]:
        """The last `limit` keys before this one, in descending order."""
        keys: Iterator[K] = self._keys.irange(maximum=before, inclusive=(False, False), reverse=True)
        return list(islice(keys, limit))

    def put(self, key: K, value: object, old: object) -> None:
        if old is None:
            self._keys.add(key)

    def delete(self, key: K, old: object) -> None:
        self._keys.discard(key)

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self._keys = fresh._keys
