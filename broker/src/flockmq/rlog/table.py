"""One table of a node: its rows, and how a run of the log changes it. Pure: no asyncio, no clock, no Redis.

What always holds, after each call:
- Tables that applied the same entries hold the same rows and have the same digest, however they came to them: by the
  log from the start, or by a bootstrap that was taken while entries were applied, and the log from there.
- A row of a purged owner is gone for `get`, `len` and `digest` at once, in constant time: sums are kept per owner, and
  a purge drops the owner's. The rows themselves, and the listeners' copies, go bucket by bucket in `sweep`.
- Nothing walks a table in one go. Rows lie in buckets (a dict each, so growing one rehashes little), and purging,
  exporting and freeing are steps of one bucket.

The digest of a table is the sum modulo 2^64 of an xxh3 of each row's logged bytes: order doesn't matter, and a changed
row changes it by two terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, Self, TypeVar

from xxhash import xxh3_64_intdigest

from flockmq import bounds
from flockmq.rlog.entry import DELETE, DROP, PUT, Op, Run
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.row import Row, RowAsLogged
from flockmq.rlog.table_spec import K, TableSpec, V

DIGEST_MASK = (1 << 64) - 1
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class TableListener(Protocol[K_contra, V_contra]):
    """Keeps something in step with a table; called synchronously, row by row, while the table changes.

    A bootstrap fills new tables beside the live ones, and new listeners with them: `fresh` gives an empty listener
    to fill, `swap` says that the fresh one's content is the table's from now on; it must take constant time.
    """

    def put(self, key: K_contra, value: V_contra, old: V_contra | None) -> None: ...
    def delete(self, key: K_contra, old: V_contra) -> None: ...
    def fresh(self) -> Self: ...
    def swap(self, fresh: Self) -> None: ...


class Sum:
    """What one owner's rows add up to."""

    __slots__ = ("bytes", "digest", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.digest = 0


class Table(Generic[K, V]):
    """What the two kinds of tables share: sums per owner, buckets, purging."""

    def __init__(self, spec: TableSpec[K, V]) -> None:
        self.spec = spec
        self.listeners: list[TableListener[K, V]] = []
        self.bytes = 0
        self._rows = 0
        self._sums: dict[str, Sum] = {}
        self._purged: set[str] = set()
        self._sweeping: frozenset[str] = frozenset()
        self._cursor = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def digest(self) -> int:
        return sum([total.digest for total in self._sums.values()]) & DIGEST_MASK

    def rows_of(self, owner: str) -> int:
        total = self._sums.get(owner)
        return 0 if total is None else total.rows

    def apply(self, kind: int, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """One run. Raises LogCorrupt if the run is not one of this table's."""
        if kind == PUT and len(keys) == len(values):
            self._put(owner, keys, values)
        elif kind == DELETE and not values:
            self._delete(owner, keys)
        elif kind == DROP and len(keys) == len(values):
            self._drop_rows(owner, keys, values)
        else:
            raise LogCorrupt(f"table {self.spec.name}: run of kind {kind}, {len(keys)} keys, {len(values)} values")

    def purge(self, owner: str) -> None:
        """All rows of the owner are gone from here on; `sweep` frees them."""
        total = self._sums.pop(owner, None)
        if total is not None and total.rows:
            self._rows -= total.rows
            self.bytes -= total.bytes
            self._purged.add(owner)

    def sweep(self) -> bool:
        """Free purged rows of one bucket that isn't empty. Returns whether there is more to do."""
        if not self._purged:
            return False
        if not self._sweeping:
            self._sweeping, self._cursor = frozenset(self._purged), 0
        had_rows = False
        while not had_rows and self._cursor < self.spec.buckets:
            had_rows = self._sweep_bucket(self._cursor, self._sweeping)
            self._cursor += 1
        if self._cursor == self.spec.buckets:
            self._purged -= self._sweeping
            self._sweeping = frozenset()
        return bool(self._purged)

    def export(self) -> Iterator[Run]:
        """All rows as PUT runs, a bucket at a time: the table may change whenever this generator is suspended."""
        for bucket in range(self.spec.buckets):
            yield from self._export_bucket(bucket)

    def retire(self) -> Iterator[None]:
        """Free the rows, a bucket a step, but for those that are empty."""
        raise NotImplementedError

    def items(self) -> Iterable[tuple[K, V]]:
        """All rows, for tables that are small; not while the table changes."""
        raise NotImplementedError

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _delete(self, owner: str, keys: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _drop_rows(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        raise LogCorrupt(f"table {self.spec.name} has no rows that can be dropped")

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> bool:
        """Whether it had any rows."""
        raise NotImplementedError

    def _export_bucket(self, bucket: int) -> Iterator[Run]:
        raise NotImplementedError

    def _sum(self, owner: str) -> Sum:
        """The sum that new rows of this owner go to. Rows it lost by a purge must be swept before it gets new ones."""
        while owner in self._purged:
            self.sweep()
        total = self._sums.get(owner)
        if total is None:
            total = self._sums[owner] = Sum()
        return total


class RowTable(Table[K, V]):
    """key → value, each row of one owner."""

    def __init__(self, spec: TableSpec[K, V]) -> None:
        super().__init__(spec)
        self._buckets: list[dict[K, Row[V]]] = [{} for _ in range(spec.buckets)]

    def get(self, key: K) -> V | None:
        row = self._buckets[hash(key) & (self.spec.buckets - 1)].get(key)
        return None if row is None or row.owner in self._purged else row.value

    def drop(self, key: K) -> Op | None:
        """What deletes the row as it is now, and no later one; None if there is none."""
        row = self._buckets[hash(key) & (self.spec.buckets - 1)].get(key)
        if row is None or row.owner in self._purged:
            return None
        raw = self.spec.split(key, row.value)[1]
        return self.spec.number, DROP, row.owner, raw, row.digest.to_bytes(8, "big")

    def items(self) -> Iterator[tuple[K, V]]:
        for bucket in self._buckets:
            for key, row in bucket.items():
                if row.owner not in self._purged:
                    yield key, row.value

    def retire(self) -> Iterator[None]:
        while self._buckets:
            if self._buckets.pop():
                yield

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        pairs = list(zip(keys, values, strict=True))
        try:
            decoded = [(self.spec.join(owner, raw), self.spec.decode(value)) for raw, value in pairs]
        except ValueError as error:
            raise LogCorrupt(f"table {self.spec.name}: {error}") from None
        total, seed = self._sum(owner), xxh3_64_intdigest(owner.encode())
        head, encode, keeps = self.spec.head, self.spec.encode, self.spec.keeps
        for (key, value), (raw, raw_value) in zip(decoded, pairs, strict=True):
            bucket = self._buckets[hash(key) & (self.spec.buckets - 1)]
            old = bucket.get(key)
            if old is not None:
                if keeps is not None and keeps(old.value, value):
                    continue
                self._discount(old)
            size, digest = len(raw) + len(raw_value), row_digest(seed, raw, raw_value)
            if raw_value[:1] == head or not head or encode(value) == raw_value:
                row = Row(value, owner, size, digest)
            else:
                row = RowAsLogged(value, owner, size, digest, raw_value)
            bucket[key] = row
            self._rows += 1
            self.bytes += row.bytes
            total.rows += 1
            total.bytes += row.bytes
            total.digest += row.digest
            for listener in self.listeners:
                listener.put(key, value, None if old is None else old.value)

    def _delete(self, owner: str, keys: Sequence[bytes]) -> None:
        for raw in keys:
            key = self.spec.join(owner, raw)
            old = self._buckets[hash(key) & (self.spec.buckets - 1)].pop(key, None)
            if old is not None:
                self._discount(old)
                for listener in self.listeners:
                    listener.delete(key, old.value)

    def _drop_rows(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        for raw, digest in zip(keys, values, strict=True):
            key = self.spec.join(owner, raw)
            row = self._buckets[hash(key) & (self.spec.buckets - 1)].get(key)
            if row is not None and row.digest == int.from_bytes(digest, "big"):
                self._delete(owner, [raw])

    def _discount(self, row: Row[V]) -> None:
        if row.owner not in self._purged:
            self._rows -= 1
            self.bytes -= row.bytes
            total = self._sums[row.owner]
            total.rows -= 1
            total.bytes -= row.bytes
            total.digest -= row.digest

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> bool:
        rows = self._buckets[bucket]
        had_rows = bool(rows)
        for key, row in [(key, row) for key, row in rows.items() if row.owner in owners]:
            del rows[key]
            for listener in self.listeners:
                listener.delete(key, row.value)
        return had_rows

    def _export_bucket(self, bucket: int) -> Iterator[Run]:
        split, encode, number = self.spec.split, self.spec.encode, self.spec.number
        runs: dict[str, Run] = {}
        size = 0
        for key, row in list(self._buckets[bucket].items()):
            if row.owner in self._purged:
                continue
            run = runs.get(row.owner)
            if run is None:
                run = runs[row.owner] = (number, PUT, row.owner, [], [])
            run[3].append(split(key, row.value)[1])
            run[4].append(row.logged if isinstance(row, RowAsLogged) else encode(row.value))
            size += row.bytes
            if size >= bounds.LOG_SLICE_MAX_BYTES:
                yield from runs.values()
                runs, size = {}, 0
        yield from runs.values()


def row_digest(seed: int, key: bytes, value: bytes) -> int:
    return xxh3_64_intdigest(value, xxh3_64_intdigest(key, seed))
