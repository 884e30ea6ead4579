"""A small table of the log as a dict that reports changes. A TableListener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RowDict(dict[K, V]):
    """A small table as a dict. Calls back for each row that changed."""

    def __init__(self, on_put: Callable[[K, V], None], on_delete: Callable[[K], None]) -> None:
        super().__init__()
        self._on_put = on_put
        self._on_delete = on_delete
        self._live = True

    def put(self, key: K, value: V, old: V | None) -> None:
        self[key] = value
        if self._live and value != old:
            self._on_put(key, value)

    def delete(self, key: K, old: V) -> None:
        if self.pop(key, None) is not None and self._live:
            self._on_delete(key)

    def fresh(self) -> Self:
        rows = type(self)(self._on_put, self._on_delete)
        rows._live = False
        return rows

    def swap(self, fresh: Self) -> None:
        """Take over the rows of the fresh one, and report the differences."""
        old = dict(self)
        self.clear()
        self.update(fresh)
        for key in [key for key in old if key not in self]:
            self._on_delete(key)
        for key, value in self.items():
            if old.get(key) != value:
                self._on_put(key, value)
