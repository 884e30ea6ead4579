"""One table of a node: its rows, and how a run of the log changes it. No I/O, no clock.

Invariants after each call:

- Tables that applied the same entries hold the same rows and have the same digest. It doesn't matter whether they read
  the log from the start, or were bootstrapped while entries were applied and read the log from there.
- A purge takes constant time, and `get`, `len` and `digest` no longer see the owner's rows: totals are kept per owner,
  and the purge drops the owner's. `sweep` then frees the rows, and tells the listeners, bucket by bucket.
- No call walks a whole table. Rows are in buckets (one dict each, so that growing one rehashes little). Purging,
  exporting and freeing take steps of one bucket.

The digest of a table is the sum modulo 2^64 of an xxh3 of each row's bytes in the log. So the order doesn't matter, and
a changed row changes two terms.
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
    """Keeps something in step with a table. It is called synchronously, row by row, while the table changes.

    A bootstrap fills new tables beside the live ones, and new listeners with them. `fresh` returns an empty listener to
    fill. `swap` takes over the content of the fresh one, and must take constant time.
    """

    def put(self, key: K_contra, value: V_contra, old: V_contra | None) -> None: ...
    def delete(self, key: K_contra, old: V_contra) -> None: ...
    def fresh(self) -> Self: ...
    def swap(self, fresh: Self) -> None: ...


class OwnerTotals:
    """The totals of one owner's rows."""

    __slots__ = ("bytes", "digest", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.digest = 0


class Table(Generic[K, V]):
    """What the two kinds of tables share: totals per owner, buckets, purging."""

    def __init__(self, spec: TableSpec[K, V]) -> None:
        self.spec = spec
        self.listeners: list[TableListener[K, V]] = []
        self.bytes = 0
        self.kept = 0
        """How many puts had no effect, because of the row that was there."""
        self.dropped = 0
        """How many rows were dropped."""
        self._rows = 0
        self._sums: dict[str, OwnerTotals] = {}
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
        """Apply one run. Raises LogCorrupt if it doesn't fit this table."""
        if kind == PUT and len(keys) == len(values):
            self._put(owner, keys, values)
        elif kind == DELETE and not values:
            self._delete(owner, keys)
        elif kind == DROP and len(keys) == len(values):
            self._drop_rows(owner, keys, values)
        else:
            raise LogCorrupt(f"table {self.spec.name}: run of kind {kind}, {len(keys)} keys, {len(values)} values")

    def purge(self, owner: str) -> None:
        """Delete all rows of the owner at once; `sweep` frees them."""
        total = self._sums.pop(owner, None)
        if total is not None and total.rows:
            self._rows -= total.rows
            self.bytes -= total.bytes
            self._purged.add(owner)

    def sweep(self) -> bool:
        """Free the purged rows of one non-empty bucket. Returns whether there is more to do."""
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
        """All rows as PUT runs, bucket by bucket. The table may change whenever this generator is suspended."""
        for bucket in range(self.spec.buckets):
            yield from self._export_bucket(bucket)

    def retire(self) -> Iterator[None]:
        """Free the rows, one non-empty bucket per step."""
        raise NotImplementedError

    def items(self) -> Iterable[tuple[K, V]]:
        """All rows, for small tables. The table must not change meanwhile."""
        raise NotImplementedError

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _delete(self, owner: str, keys: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _drop_rows(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        raise LogCorrupt(f"table {self.spec.name} has no rows that can be dropped")

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> bool:
        """Returns whether the bucket had any rows."""
        raise NotImplementedError

    def _export_bucket(self, bucket: int) -> Iterator[Run]:
        raise NotImplementedError

    def _totals(self, owner: str) -> OwnerTotals:
        """The totals of this owner. Its purged rows are swept first, before it gets new ones."""
        while owner in self._purged:
            self.sweep()
        total = self._sums.get(owner)
        if total is None:
            total = self._sums[owner] = OwnerTotals()
        return total


class RowTable(Table[K, V]):
    """key → value; each row has one owner."""

    def __init__(self, spec: TableSpec[K, V]) -> None:
        super().__init__(spec)
        self._buckets: list[dict[K, Row[V]]] = [{} for _ in range(spec.buckets)]

    def get(self, key: K) -> V | None:
        row = self._buckets[hash(key) & (self.spec.buckets - 1)].get(key)
        return None if row is None or row.owner in self._purged else row.value

    def drop(self, key: K) -> Op | None:
        """The op that deletes the row only as it is now (compare and delete). None if there is no row."""
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
        total, seed = self._totals(owner), xxh3_64_intdigest(owner.encode())
        value_prefix, encode, keeps = self.spec.value_prefix, self.spec.encode, self.spec.keeps
        for (key, value), (raw, raw_value) in zip(decoded, pairs, strict=True):
            bucket = self._buckets[hash(key) & (self.spec.buckets - 1)]
            old = bucket.get(key)
            if old is not None:
                if keeps is not None and keeps(old.value, value):
                    self.kept += 1
                    continue
                self._discount(old)
            size, digest = len(raw) + len(raw_value), row_digest(seed, raw, raw_value)
            if raw_value[:1] == value_prefix or not value_prefix or encode(value) == raw_value:
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
                self.dropped += 1

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
