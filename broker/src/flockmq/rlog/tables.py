"""All tables of a node, shard by shard: how log entries change them, and how a bootstrap replaces a shard.

No I/O, no clock. Invariants: a shard's tables are at one log position, `applied`. A swap takes constant time, and no
code sees a half-filled table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from flockmq import bounds
from flockmq.rlog.entry import PURGE, START, Run, StreamId, Transaction
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.route_table import RouteTable
from flockmq.rlog.schema import (
    ALARMS,
    API_KEYS,
    AUDIT,
    AUTH,
    BANS,
    CLAIMS,
    CLUSTER,
    DELAYED,
    IMPORTS,
    MESSAGES,
    NODES,
    QUOTAS,
    RETAINED,
    ROUTE,
    ROUTES,
    RULES,
    SECRETS,
    SETTINGS,
    SHARDS,
    SHARES,
    SLOTS,
    USERS,
    VERSIONS,
    Alarm,
    ApiKey,
    AuditEntry,
    Ban,
    DelayedMessage,
    ImportedFile,
    NodeInfo,
    OwnQuotas,
    RaisedVersion,
    RetainedMessage,
    SettingsRevision,
    SharedMembers,
    User,
)
from flockmq.rlog.table import RowTable, Table
from flockmq.rlog.table_spec import LATER, NUMBER_MAX, unknown_table_spec

Digests = tuple[int, ...]
"""First the digests of the tables that every release has, in the order of `_new_shard`. Then number and digest of each
later table that has rows. So a node that doesn't know a table agrees with one that has it without rows."""


class Shard:
    """The tables of one shard at one log position."""

    def __init__(self, name: str, tables: Sequence[Table[object, object]]) -> None:
        self.name = name
        self.applied: StreamId = START
        self.is_whole = True
        """False: a part of an entry is in the tables, the rest of which can't be applied."""
        self.is_swept = True
        """False: rows of purged owners aren't freed yet."""
        self.sequences: dict[str, int] = {}
        """Registered incarnation → the number of its last applied transaction."""
        self.ended: dict[str, int] = {}
        """The last numbers of the incarnations that were purged last. These never write again."""
        self.tables: dict[int, Table[object, object]] = {table.spec.number: table for table in tables}
        self.checkpoints: dict[StreamId, Digests] = {}
        """The digests at the latest checkpoints."""

    def apply(self, stream_id: StreamId, transactions: Sequence[Transaction]) -> None:
        """One entry. Readers that run between calls see all of it or nothing. Raises LogCorrupt for what no node of
        this version writes; the shard must be bootstrapped again then."""
        self.is_whole = False
        for incarnation, number, runs in transactions:
            if incarnation:
                self.sequences[incarnation] = number
            self.apply_runs(runs)
        self.applied = stream_id
        self.is_whole = True

    def checkpoint(self, stream_id: StreamId) -> None:
        """Record the digests at this log position."""
        self.applied = stream_id
        self.checkpoints[stream_id] = self._compared()
        if len(self.checkpoints) > bounds.LOG_CHECKPOINTS_MAX:
            del self.checkpoints[next(iter(self.checkpoints))]

    def apply_runs(self, runs: Sequence[Run]) -> None:
        for number, kind, owner, keys, values in runs:
            if kind == PURGE:
                self._end(owner)
                self.is_swept = False
                for table in self.tables.values():
                    table.purge(owner)
                continue
            table_or_none = self.tables.get(number)
            known = self._add_unknown(number) if table_or_none is None else table_or_none
            known.apply(kind, owner, keys, values)

    def _end(self, incarnation: str) -> None:
        number = self.sequences.pop(incarnation, None)
        if number is not None:
            self.ended[incarnation] = number
            if len(self.ended) > bounds.LOG_PURGED_MAX_INCARNATIONS:
                del self.ended[next(iter(self.ended))]

    def _add_unknown(self, number: int) -> Table[object, object]:
        """Add a table of a later release: this node keeps its rows for nodes that can read them. Raises LogCorrupt."""
        if not LATER <= number <= NUMBER_MAX:
            raise LogCorrupt(f"shard {self.name}: no table has number {number}; is this node older than its peers?")
        table = cast(Table[object, object], RowTable(unknown_table_spec(number, self.name)))
        self.tables[number] = table
        return table

    def sweep(self) -> bool:
        """Free some purged rows. Returns whether there is more to do."""
        self.is_swept = not any(table.sweep() for table in self.tables.values())
        return not self.is_swept

    def export(self) -> Iterator[Run]:
        for table in list(self.tables.values()):  # an unknown table may be added meanwhile
            yield from table.export()

    def digests(self) -> dict[str, int]:
        """By table: its name, or the number of a later table."""
        return {table.spec.name if number < LATER else str(number): table.digest for number, table in self._counted()}

    def _compared(self) -> Digests:
        digests: list[int] = []
        for number, table in self._counted():
            digests += [table.digest] if number < LATER else [number, table.digest]
        return tuple(digests)

    def _counted(self) -> list[tuple[int, Table[object, object]]]:
        """Tables that every release has, and those later ones that have rows."""
        later = [(number, table) for number, table in self.tables.items() if number >= LATER and len(table)]
        return [item for item in self.tables.items() if item[0] < LATER] + sorted(later, key=lambda item: item[0])

    def retire(self) -> Iterator[None]:
        for table in self.tables.values():
            yield from table.retire()

    def fresh(self) -> Shard:
        """An empty shard with fresh listeners, to be filled beside this one."""
        shard = _new_shard(self.name)
        for number, table in shard.tables.items():
            table.listeners = [listener.fresh() for listener in self.tables[number].listeners]
        return shard

    def hand_over(self, fresh: Shard) -> None:
        """The listeners of this shard continue with `fresh`."""
        for number, filled in fresh.tables.items():
            if (table := self.tables.get(number)) is None:
                continue  # this release does not know the table, so it has no listeners
            for listener, of_filled in zip(table.listeners, filled.listeners, strict=True):
                listener.swap(of_filled)
            filled.listeners, table.listeners = table.listeners, []


class Tables:
    """All shards of a node. A property returns the live table. Don't keep it across event-loop iterations, because a
    bootstrap replaces it."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {name: _new_shard(name) for name in SHARDS}

    def swap(self, fresh: Shard) -> Shard:
        """Replace the shard of the same name by `fresh`, in constant time. Returns the old one, to be retired."""
        old = self.shards[fresh.name]
        old.hand_over(fresh)
        self.shards[fresh.name] = fresh
        return old

    def named(self, name: str) -> Table[object, object]:
        """The live table with this name. Raises KeyError."""
        for shard in self.shards.values():
            for table in shard.tables.values():
                if table.spec.name == name:
                    return table
        raise KeyError(f"no table is named {name!r}")

    @property
    def nodes(self) -> RowTable[str, NodeInfo]:
        return cast(RowTable[str, NodeInfo], self.shards[CLUSTER].tables[NODES.number])

    @property
    def slots(self) -> RowTable[int, str]:
        return cast(RowTable[int, str], self.shards[CLUSTER].tables[SLOTS.number])

    @property
    def alarms(self) -> RowTable[str, Alarm]:
        return cast(RowTable[str, Alarm], self.shards[CLUSTER].tables[ALARMS.number])

    @property
    def versions(self) -> RowTable[str, RaisedVersion]:
        return cast(RowTable[str, RaisedVersion], self.shards[CLUSTER].tables[VERSIONS.number])

    @property
    def routes(self) -> RouteTable:
        return cast(RouteTable, self.shards[ROUTE].tables[ROUTES.number])

    @property
    def messages(self) -> RowTable[bytes, RetainedMessage]:
        return cast(RowTable[bytes, RetainedMessage], self.shards[RETAINED].tables[MESSAGES.number])

    @property
    def shares(self) -> RowTable[tuple[bytes, str], SharedMembers]:
        return cast(RowTable[tuple[bytes, str], SharedMembers], self.shards[ROUTE].tables[SHARES.number])

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
    def imports(self) -> RowTable[str, ImportedFile]:
        return cast(RowTable[str, ImportedFile], self.shards[AUTH].tables[IMPORTS.number])

    @property
    def api_keys(self) -> RowTable[str, ApiKey]:
        return cast(RowTable[str, ApiKey], self.shards[AUTH].tables[API_KEYS.number])

    @property
    def audit(self) -> RowTable[str, AuditEntry]:
        return cast(RowTable[str, AuditEntry], self.shards[AUTH].tables[AUDIT.number])

    @property
    def secrets(self) -> RowTable[str, bytes]:
        return cast(RowTable[str, bytes], self.shards[AUTH].tables[SECRETS.number])

    @property
    def quotas(self) -> RowTable[str, OwnQuotas]:
        return cast(RowTable[str, OwnQuotas], self.shards[AUTH].tables[QUOTAS.number])

    @property
    def settings(self) -> RowTable[int, SettingsRevision]:
        return cast(RowTable[int, SettingsRevision], self.shards[AUTH].tables[SETTINGS.number])


def _new_shard(name: str) -> Shard:
    tables: dict[str, Callable[[], list[object]]] = {
        CLUSTER: lambda: [RowTable(NODES), RowTable(SLOTS), RowTable(ALARMS), RowTable(VERSIONS)],
        ROUTE: lambda: [RouteTable(ROUTES), RowTable(SHARES), RowTable(CLAIMS)],
        RETAINED: lambda: [RowTable(MESSAGES), RowTable(DELAYED)],
        AUTH: lambda: [
            *(RowTable(USERS), RowTable(RULES), RowTable(BANS), RowTable(IMPORTS)),
            *(RowTable(API_KEYS), RowTable(AUDIT), RowTable(SECRETS), RowTable(QUOTAS)),
            RowTable(SETTINGS),
        ],
    }
    return Shard(name, cast(list[Table[object, object]], tables[name]()))
