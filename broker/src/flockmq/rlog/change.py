"""Row changes that are about to be written, gathered into runs, with the space they need. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flockmq.rlog.entry import DROP, PUT, Op, Run


class Puts:
    """Rows put into tables: table → (rows, bytes). Rows that replace existing rows count as well."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[int, tuple[int, int]] = {}

    def count(self, table: int, more_rows: int, more_bytes: int) -> None:
        rows, size = self.of.get(table, _NONE)
        self.of[table] = rows + more_rows, size + more_bytes

    def add(self, other: Puts, sign: int = 1) -> None:
        for table, (more_rows, more_bytes) in other.of.items():
            self.count(table, sign * more_rows, sign * more_bytes)

    def get(self, table: int) -> tuple[int, int]:
        return self.of.get(table, _NONE)


class Change:
    """One write: its runs, the rows it puts, and the bytes of all its keys and values."""

    __slots__ = ("bytes", "puts", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.puts = Puts()
        self.bytes = 0

    def add(self, later: Change) -> None:
        """Append a later change. This object takes over the runs of `later`."""
        runs = self.runs
        for run in later.runs:
            table, kind, owner, keys, values = run
            if runs:
                last_table, last_kind, last_owner, last_keys, last_values = runs[-1]
                if table == last_table and kind == last_kind and owner == last_owner:
                    last_keys.extend(keys)
                    last_values.extend(values)
                    continue
            runs.append(run)
        self.puts.add(later.puts)
        self.bytes += later.bytes


_NONE: Final = (0, 0)


def gather(ops: Sequence[Op]) -> Change:
    """Group consecutive ops of the same table, kind and owner into runs, in order."""
    change = Change()
    run_table, run_kind, run_owner, run_bytes = -1, -1, "", 0
    keys: list[bytes] = []
    values: list[bytes] = []
    for table, kind, owner, key, value in ops:
        if table != run_table or kind != run_kind or owner != run_owner:
            _end_run(change, run_table, run_kind, len(keys), run_bytes)
            run_table, run_kind, run_owner, run_bytes = table, kind, owner, 0
            keys, values = [], []
            change.runs.append((table, kind, owner, keys, values))
        keys.append(key)
        if kind in (PUT, DROP):
            values.append(value)
        run_bytes += len(key) + len(value)
    _end_run(change, run_table, run_kind, len(keys), run_bytes)
    return change


def _end_run(change: Change, table: int, kind: int, rows: int, size: int) -> None:
    change.bytes += size
    if kind == PUT:
        change.puts.count(table, rows, size)
