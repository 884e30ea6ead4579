"""A node's copy of the tables, and how entries of the log change it. Pure: no asyncio, no clock, no Redis.

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, Self, TypeVar, cast

import msgspec
from xxhash import xxh3_64_intdigest

from flockmq import bounds
from flockmq.rlog.entry import DELETE, DROP, PURGE, PUT, START, Op, Run, StreamId, Transaction
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.shards import (
    AUTH,
    BANS,
    CLAIMS,
    CLUSTER,
    DELAYED,
    IMPORTS,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    RULES,
    SHARDS,
    SHARES,
    SLOTS,
    USERS,
    Ban,
    DelayedMessage,
    Import,
    K,
    Members,
    NodeInfo,
    RetainedMessage,
    TableSpec,
    User,
    V,
)

DIGEST_MASK = (1 << 64) - 1
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class Listener(Protocol[K_contra, V_contra]):
    """Keeps something in step with a table; called synchronously, row by row, while the table changes.

    A bootstrap fills new tables beside the live ones, and new listeners with them: `fresh` gives an empty listener
    to fill, `swap` says that the fresh one's content is the table's from now on; it must take constant time.
    """

    def put(self, key: K_contra, value: V_contra, old: V_contra | None) -> None: ...
    def delete(self, key: K_contra, old: V_contra) -> None: ...
    def fresh(self) -> Self: ...
    def swap(self, fresh: Self) -> None: ...


class _Sum:
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
        self.listeners: list[Listener[K, V]] = []
        self.bytes = 0
        self._rows = 0
        self._sums: dict[str, _Sum] = {}
        self._purged: set[str] = set()
        self._sweeping: frozenset[str] = frozenset()
        self._cursor = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def digest(self) -> int:
        return sum(total.digest for total in self._sums.values()) & DIGEST_MASK

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
        """Free purged rows of one bucket. Returns whether there is more to do."""
        if not self._purged:
            return False
        if not self._sweeping:
            self._sweeping, self._cursor = frozenset(self._purged), 0
        self._sweep_bucket(self._cursor, self._sweeping)
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
        """Free the rows, a bucket a step."""
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

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> None:
        raise NotImplementedError

    def _export_bucket(self, bucket: int) -> Iterator[Run]:
        raise NotImplementedError

    def _sum(self, owner: str) -> _Sum:
        """The sum that new rows of this owner go to. Rows it lost by a purge must be swept before it gets new ones."""
        while owner in self._purged:
            self.sweep()
        total = self._sums.get(owner)
        if total is None:
            total = self._sums[owner] = _Sum()
        return total


class Row(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """Nothing that the garbage collector would have to look at, of which there may be a million."""

    value: V
    owner: str
    bytes: int
    digest: int


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
            self._buckets.pop()
            yield

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        pairs = list(zip(keys, values, strict=True))
        try:
            decoded = [(self.spec.join(owner, raw), self.spec.decode(value)) for raw, value in pairs]
        except ValueError as error:
            raise LogCorrupt(f"table {self.spec.name}: {error}") from None
        total, seed = self._sum(owner), xxh3_64_intdigest(owner.encode())
        for (key, value), (raw, raw_value) in zip(decoded, pairs, strict=True):
            bucket = self._buckets[hash(key) & (self.spec.buckets - 1)]
            old = bucket.get(key)
            if old is not None:
                self._discount(old)
            row = Row(value, owner, len(raw) + len(raw_value), _row_digest(seed, raw, raw_value))
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

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> None:
        rows = self._buckets[bucket]
        for key, row in [(key, row) for key, row in rows.items() if row.owner in owners]:
            del rows[key]
            for listener in self.listeners:
                listener.delete(key, row.value)

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
            run[4].append(encode(row.value))
            size += row.bytes
            if size >= bounds.LOG_SLICE_MAX_BYTES:
                yield from runs.values()
                runs, size = {}, 0
        yield from runs.values()


class NodeSet:
    """The nodes that want a filter; one object for all filters that the same nodes want."""

    __slots__ = ("members", "rows")

    def __init__(self, members: frozenset[str]) -> None:
        self.members = members
        self.rows = 0


class RouteTable(Table[tuple[bytes, str], None]):
    """filter → nodes. A row is (filter, node) and has no value; what is stored is one dict item a filter."""

    def __init__(self, spec: TableSpec[tuple[bytes, str], None]) -> None:
        super().__init__(spec)
        self._buckets: list[dict[bytes, NodeSet]] = [{} for _ in range(spec.buckets)]
        self._sets: dict[frozenset[str], NodeSet] = {}

    @property
    def node_sets(self) -> int:
        """How many different sets of nodes the filters share."""
        return len(self._sets)

    def nodes(self, topic_filter: bytes) -> frozenset[str]:
        nodes = self._buckets[hash(topic_filter) & (self.spec.buckets - 1)].get(topic_filter)
        if nodes is None:
            return frozenset()
        return nodes.members - self._purged if self._purged else nodes.members

    def items(self) -> Iterator[tuple[tuple[bytes, str], None]]:
        for bucket in self._buckets:
            for topic_filter, nodes in bucket.items():
                for owner in nodes.members - self._purged:
                    yield (topic_filter, owner), None

    def retire(self) -> Iterator[None]:
        while self._buckets:
            self._buckets.pop()
            yield

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        total, seed = self._sum(owner), xxh3_64_intdigest(owner.encode())
        buckets, mask, listeners = self._buckets, self.spec.buckets - 1, self.listeners
        alone = self._hold(frozenset((owner,)))
        digest = size = rows = 0
        for topic_filter in keys:
            bucket = buckets[hash(topic_filter) & mask]
            nodes = bucket.get(topic_filter)
            if nodes is None:
                bucket[topic_filter] = alone
                alone.rows += 1
            elif owner in nodes.members:
                continue
            else:
                bucket[topic_filter] = self._hold(nodes.members | alone.members)
                self._let_go(nodes)
            rows += 1
            size += len(topic_filter)
            digest += xxh3_64_intdigest(topic_filter, seed)
            for listener in listeners:
                listener.put((topic_filter, owner), None, None)
        self._let_go(alone)
        self._count(total, rows, size, digest)

    def _delete(self, owner: str, keys: Sequence[bytes]) -> None:
        total, seed = self._sum(owner), xxh3_64_intdigest(owner.encode())
        buckets, mask, listeners = self._buckets, self.spec.buckets - 1, self.listeners
        digest = size = rows = 0
        for topic_filter in keys:
            bucket = buckets[hash(topic_filter) & mask]
            nodes = bucket.get(topic_filter)
            if nodes is None or owner not in nodes.members:
                continue
            self._drop(bucket, topic_filter, nodes, frozenset((owner,)))
            rows += 1
            size += len(topic_filter)
            digest += xxh3_64_intdigest(topic_filter, seed)
            for listener in listeners:
                listener.delete((topic_filter, owner), None)
        self._count(total, -rows, -size, -digest)

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> None:
        rows = self._buckets[bucket]
        for topic_filter, nodes in [(f, nodes) for f, nodes in rows.items() if not owners.isdisjoint(nodes.members)]:
            gone = nodes.members & owners
            self._drop(rows, topic_filter, nodes, gone)
            for owner in gone:
                for listener in self.listeners:
                    listener.delete((topic_filter, owner), None)

    def _export_bucket(self, bucket: int) -> Iterator[Run]:
        runs: dict[str, Run] = {}
        size = 0
        for topic_filter, nodes in list(self._buckets[bucket].items()):
            for owner in nodes.members - self._purged:
                run = runs.get(owner)
                if run is None:
                    run = runs[owner] = (self.spec.number, PUT, owner, [], [])
                run[3].append(topic_filter)
                run[4].append(b"")
                size += len(topic_filter)
            if size >= bounds.LOG_SLICE_MAX_BYTES:
                yield from runs.values()
                runs, size = {}, 0
        yield from runs.values()

    def _count(self, total: _Sum, rows: int, size: int, digest: int) -> None:
        self._rows += rows
        self.bytes += size
        total.rows += rows
        total.bytes += size
        total.digest += digest

    def _drop(self, bucket: dict[bytes, NodeSet], topic_filter: bytes, nodes: NodeSet, gone: frozenset[str]) -> None:
        left = nodes.members - gone
        if left:
            bucket[topic_filter] = self._hold(left)
        else:
            del bucket[topic_filter]
        self._let_go(nodes)

    def _hold(self, members: frozenset[str]) -> NodeSet:
        nodes = self._sets.get(members)
        if nodes is None:
            nodes = self._sets[members] = NodeSet(members)
        nodes.rows += 1
        return nodes

    def _let_go(self, nodes: NodeSet) -> None:
        nodes.rows -= 1
        if not nodes.rows:
            del self._sets[nodes.members]


def _row_digest(seed: int, key: bytes, value: bytes) -> int:
    return xxh3_64_intdigest(value, xxh3_64_intdigest(key, seed))


class Shard:
    """The tables of one shard at one place of its log."""

    def __init__(self, name: str, tables: Sequence[Table[object, object]]) -> None:
        self.name = name
        self.applied: StreamId = START
        self.sequences: dict[str, int] = {}
        """Registered incarnation → the number of its last transaction that is applied."""
        self.tables: dict[int, Table[object, object]] = {table.spec.number: table for table in tables}

    def apply(self, stream_id: StreamId, transactions: Sequence[Transaction]) -> None:
        """One entry. Readers that run between calls see all of it or nothing. Raises LogCorrupt for what no node of
        this version writes; the shard must be bootstrapped again then."""
        for incarnation, number, runs in transactions:
            if incarnation:
                self.sequences[incarnation] = number
            self.apply_runs(runs)
        self.applied = stream_id

    def apply_runs(self, runs: Sequence[Run]) -> None:
        for number, kind, owner, keys, values in runs:
            if kind == PURGE:
                self.sequences.pop(owner, None)
                for table in self.tables.values():
                    table.purge(owner)
                continue
            table_or_none = self.tables.get(number)
            if table_or_none is None:
                raise LogCorrupt(f"shard {self.name}: no table has number {number}; is this node older than its peers?")
            table_or_none.apply(kind, owner, keys, values)

    def sweep(self) -> bool:
        """One step of freeing purged rows. Returns whether there is more to do."""
        return any(table.sweep() for table in self.tables.values())

    def export(self) -> Iterator[Run]:
        for table in self.tables.values():
            yield from table.export()

    def digests(self) -> dict[str, int]:
        return {table.spec.name: table.digest for table in self.tables.values()}

    def retire(self) -> Iterator[None]:
        for table in self.tables.values():
            yield from table.retire()

    def fresh(self) -> Shard:
        """An empty shard with fresh listeners, to be filled beside this one."""
        shard = _new_shard(self.name)
        for number, table in self.tables.items():
            shard.tables[number].listeners = [listener.fresh() for listener in table.listeners]
        return shard

    def hand_over(self, fresh: Shard) -> None:
        """The listeners of this shard go on with `fresh`."""
        for number, table in self.tables.items():
            for listener, filled in zip(table.listeners, fresh.tables[number].listeners, strict=True):
                listener.swap(filled)
            fresh.tables[number].listeners, table.listeners = table.listeners, []


class Tables:
    """All shards of a node. A property gives the live table; don't keep it across turns, a bootstrap replaces it."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {name: _new_shard(name) for name in SHARDS}

    def swap(self, fresh: Shard) -> Shard:
        """Put `fresh` in the place of the shard of its name, in constant time. Returns the old one, to be retired."""
        old = self.shards[fresh.name]
        old.hand_over(fresh)
        self.shards[fresh.name] = fresh
        return old

    def named(self, name: str) -> Table[object, object]:
        """The live table of that name. Raises KeyError."""
        for shard in self.shards.values():
            for table in shard.tables.values():
                if table.spec.name == name:
                    return table
        raise KeyError(f"no table is named {name!r}")

    def numbered(self, number: int) -> Table[object, object]:
        """The live table of that number. Raises KeyError."""
        for shard in self.shards.values():
            table = shard.tables.get(number)
            if table is not None:
                return table
        raise KeyError(f"no table has number {number}")

    @property
    def nodes(self) -> RowTable[str, NodeInfo]:
        return cast(RowTable[str, NodeInfo], self.shards[CLUSTER].tables[NODES.number])

    @property
    def slots(self) -> RowTable[int, str]:
        return cast(RowTable[int, str], self.shards[CLUSTER].tables[SLOTS.number])

    @property
    def routes(self) -> RouteTable:
        return cast(RouteTable, self.shards[ROUTE].tables[ROUTES.number])

    @property
    def messages(self) -> RowTable[bytes, RetainedMessage]:
        return cast(RowTable[bytes, RetainedMessage], self.shards[RETAINED].tables[MESSAGES.number])

    @property
    def shares(self) -> RowTable[tuple[bytes, str], Members]:
        return cast(RowTable[tuple[bytes, str], Members], self.shards[ROUTE].tables[SHARES.number])

    @property
    def claims(self) -> RowTable[tuple[bytes, str], bytes]:
        return cast(RowTable[tuple[bytes, str], bytes], self.shards[ROUTE].tables[CLAIMS.number])

    @property
    def delayed(self) -> RowTable[bytes, DelayedMessage]:
        return cast(RowTable[bytes, DelayedMessage], self.shards[RETAINED].tables[DELAYED.number])

    @property
    def users(self) -> RowTable[str, User]:
        return cast(RowTable[str, User], self.shards[AUTH].tables[USERS.number])

    @property
    def rules(self) -> RowTable[tuple[str, str], bytes]:
        return cast(RowTable[tuple[str, str], bytes], self.shards[AUTH].tables[RULES.number])

    @property
    def bans(self) -> RowTable[tuple[str, str], Ban]:
        return cast(RowTable[tuple[str, str], Ban], self.shards[AUTH].tables[BANS.number])

    @property
    def imports(self) -> RowTable[str, Import]:
        return cast(RowTable[str, Import], self.shards[AUTH].tables[IMPORTS.number])


def _new_shard(name: str) -> Shard:
    tables: dict[str, Callable[[], list[object]]] = {
        CLUSTER: lambda: [RowTable(NODES), RowTable(SLOTS)],
        ROUTE: lambda: [RouteTable(ROUTES), RowTable(SHARES), RowTable(CLAIMS)],
        RETAINED: lambda: [RowTable(MESSAGES), RowTable(DELAYED)],
        AUTH: lambda: [RowTable(USERS), RowTable(RULES), RowTable(BANS), RowTable(IMPORTS)],
    }
    return Shard(name, cast(list[Table[object, object]], tables[name]()))
