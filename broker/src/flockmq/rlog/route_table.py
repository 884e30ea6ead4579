"""The table of routes. Many nodes want one filter, but there are few different sets of nodes, so equal sets share one
object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xxhash import xxh3_64_intdigest

from flockmq import bounds
from flockmq.rlog.entry import PUT, Run
from flockmq.rlog.table import OwnerTotals, Table
from flockmq.rlog.table_spec import TableSpec


class NodeSet:
    """A set of nodes that want a filter. All filters of the same nodes share one object; `rows` counts them."""

    __slots__ = ("members", "rows")

    def __init__(self, members: frozenset[str]) -> None:
        self.members = members
        self.rows = 0


class RouteTable(Table[tuple[bytes, str], None]):
    """filter → nodes. A row is (filter, node), without a value. Stored as one dict item per filter."""

    def __init__(self, spec: TableSpec[tuple[bytes, str], None]) -> None:
        super().__init__(spec)
        self._buckets: list[dict[bytes, NodeSet]] = [{} for _ in range(spec.buckets)]
        self._sets: dict[frozenset[str], NodeSet] = {}

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
            if self._buckets.pop():
                yield

    def _put(self, owner: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        total, seed = self._totals(owner), xxh3_64_intdigest(owner.encode())
        buckets, mask, listeners = self._buckets, self.spec.buckets - 1, self.listeners
        alone = self._acquire(frozenset((owner,)))
        digest = size = rows = 0
        for topic_filter in keys:
            bucket = buckets[hash(topic_filter) & mask]
            filters = len(bucket)
            nodes = bucket.setdefault(topic_filter, alone)
            if len(bucket) != filters:
                alone.rows += 1
            elif owner in nodes.members:
                continue
            else:
                bucket[topic_filter] = self._acquire(nodes.members | alone.members)
                self._release(nodes)
            rows += 1
            size += len(topic_filter)
            digest += xxh3_64_intdigest(topic_filter, seed)
            for listener in listeners:
                listener.put((topic_filter, owner), None, None)
        self._release(alone)
        self._count(total, rows, size, digest)

    def _delete(self, owner: str, keys: Sequence[bytes]) -> None:
        total, seed = self._totals(owner), xxh3_64_intdigest(owner.encode())
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

    def _sweep_bucket(self, bucket: int, owners: frozenset[str]) -> bool:
        rows = self._buckets[bucket]
        had_rows = bool(rows)
        for topic_filter, nodes in [(f, nodes) for f, nodes in rows.items() if not owners.isdisjoint(nodes.members)]:
            gone = nodes.members & owners
            self._drop(rows, topic_filter, nodes, gone)
            for owner in gone:
                for listener in self.listeners:
                    listener.delete((topic_filter, owner), None)
        return had_rows

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

    def _count(self, total: OwnerTotals, rows: int, size: int, digest: int) -> None:
        self._rows += rows
        self.bytes += size
        total.rows += rows
        total.bytes += size
        total.digest += digest

    def _drop(self, bucket: dict[bytes, NodeSet], topic_filter: bytes, nodes: NodeSet, gone: frozenset[str]) -> None:
        left = nodes.members - gone
        if left:
            bucket[topic_filter] = self._acquire(left)
        else:
            del bucket[topic_filter]
        self._release(nodes)

    def _acquire(self, members: frozenset[str]) -> NodeSet:
        nodes = self._sets.get(members)
        if nodes is None:
            nodes = self._sets[members] = NodeSet(members)
        nodes.rows += 1
        return nodes

    def _release(self, nodes: NodeSet) -> None:
        nodes.rows -= 1
        if not nodes.rows:
            del self._sets[nodes.members]
