"""Cluster-wide quotas of users: nodes report the usage of their largest users to each other; the leader raises alarms.

    node ─ usage of its largest users ─▶ every core ─ their usage on other nodes ─▶ replicants

Invariants:
- A node decides by its own usage and by the last reports of the nodes that it is linked with.
- An alarm `user-over-quota/NAME` exists while a user has used up a quota, for at most QUOTA_ALARMS_MAX users.
- Without authentication, and without client ids bound to user names, there are no users and no quotas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.config.schema import QuotasSettings as Settings
from flockmq.default_quotas import LeastMemory, MaxMemory, default_limits
from flockmq.durable.session_store import SessionStore
from flockmq.management.quota_admin import QuotaAdmin
from flockmq.management.view import QuotaRow, QuotasShown
from flockmq.membership.cluster import Cluster
from flockmq.membership.reachability import CORE_ROLES
from flockmq.node.quota_tables import DelayedBytes, OwnLimits
from flockmq.publishing.storage_quota import StorageQuota
from flockmq.quotas import INFINITE, KINDS, NOTHING, Held, Quotas, Usage, over
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import DELAYED, QUOTAS
from flockmq.telemetry.sample import Sample

log: Final = logging.getLogger(__name__)

HELD: Final = "quota.held"
ELSEWHERE: Final = "quota.elsewhere"
PREFIX: Final = "user-over-quota/"
_ANONYMOUS: Final = "(anonymous)"
_UNITS: Final = ((1024 * 1024, "MiB"), (1024, "KiB"))


class UserUsage(msgspec.Struct, frozen=True, array_like=True):
    """A user's usage on one node, or on all other nodes."""

    user: bytes
    sessions: int
    queued_bytes: int
    subscriptions: int
    subscription_bytes: int

    def held(self) -> Held:
        return Held(self.sessions, self.queued_bytes, self.subscriptions, self.subscription_bytes)


class QuotaReport(msgspec.Struct, frozen=True, array_like=True):
    """A usage report, sent from node to node."""

    redis_bytes: int
    """The smallest `maxmemory` of the Redis servers; INFINITE if there is no limit, 0 if unknown."""
    users: list[UserUsage]
    is_urgent: bool = False
    """A user's usage has grown fast, so the receiver must report at once too."""
    core_bytes: int = 0
    """What the sender may use, if it is a core; else 0. Nodes of earlier releases don't say it."""
    node_bytes: int = 0
    """To a core: what the sender may use. To a replicant: the smallest that the sender knows of."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(QuotaReport).decode


class UserQuotas:
    """`store` is None if this node isn't a core. `have_users` tells whether clients have users: they are
    authenticated, or their user names are trusted because client ids are bound to them. `memory_bytes`: what this node
    may use; 0: any."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        rlog: Rlog,
        store: SessionStore | None,
        have_users: Callable[[], bool],
        now_s: Callable[[], float],
        memory_bytes: int = 0,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._rlog = rlog
        self._store = store
        self._have_users = have_users
        self._now_s = now_s
        self._memory_bytes = memory_bytes
        self._reports: dict[str, QuotaReport] = {}
        """The last report of each linked node, by incarnation."""
        self._is_urgent = False
        self._soon: asyncio.TimerHandle | None = None
        self._looked_s = 0.0
        self._maxmemory = MaxMemory()
        self.quotas = Quotas(self._limits())
        self.quotas.on_growth = self._grew
        self.quotas.must_report = self._must_report
        self._on_its_way = StorageQuota(self.quotas)
        self.grant = self._on_its_way.grant
        self.confirmed = self._on_its_way.confirmed
        rlog.on_change(DELAYED.name, DelayedBytes(self.quotas.delayed))
        rlog.on_change(QUOTAS.name, OwnLimits(self.quotas))
        self.admin = QuotaAdmin(rlog, cluster.version.gate(2), have_users)
        cluster.on_link_lost.append(self._link_lost)
        for method in (HELD, ELSEWHERE):
            cluster.on_note(method, partial(self._received, method))

    def whose(self, user: bytes | None) -> bytes | None:
        """The user for whom to count; None if clients have no users."""
        return user if self._have_users() else None

    def usage(self, user: bytes | None) -> Usage | None:
        return None if user is None or not self._have_users() else self.quotas.of(user)

    def configure(self, settings: Settings) -> None:
        """Other quotas, at once. What exists continues."""
        self._settings = settings
        self.quotas.limit(self._limits())

    async def watch(self) -> None:
        """Call `look` regularly. Runs until cancelled."""
        while True:
            await asyncio.sleep(bounds.QUOTA_TOLD_EVERY_S)
            self.look()
            if self.quotas.must_recheck:
                self.quotas.must_recheck = False
                await self._recheck()

    async def _recheck(self) -> None:
        """After a change of limits, find the large users again."""
        users = self.quotas.known_users()
        for first in range(0, len(users), bounds.QUOTA_SLICE_USERS):
            for user in users[first : first + bounds.QUOTA_SLICE_USERS]:
                self.quotas.recheck(user)
            await asyncio.sleep(0)

    def look(self) -> None:
        self._looked_s = self._now_s()
        self._reports = {who: note for who, note in self._reports.items() if self._cluster.is_linked(who)}
        self._maxmemory.look(self._seen_redis_bytes(), self._looked_s)
        self.quotas.limit(self._limits())
        self._add_up()
        if self._must_report():
            self._send_reports()
        self.quotas.report_sent()
        if self._cluster.is_leader:
            self._look_at_alarms()

    def _must_report(self) -> bool:
        """Whether there are other nodes, and all of them know these reports."""
        return self._cluster.version.at_least(2) and len(self._cluster.nodes_table) > 1

    def _add_up(self) -> None:
        together = _sum if self._cluster.is_core else _most
        self.quotas.elsewhere = together(note.users for note in self._reports.values())

    def users(self) -> dict[bytes, Held]:
        """The largest users of the whole cluster."""
        known = dict.fromkeys((*self.quotas.elsewhere, *self.quotas.large_users, *self._storing()))
        return self.quotas.most({user: self.quotas.total(user) for user in known})

    def shown(self) -> QuotasShown:
        """The largest users first."""
        quotas = self.quotas
        users = sorted(self.users().items(), key=lambda row: quotas.share(*row), reverse=True)
        return QuotasShown(
            limits=_shown(quotas.limits),
            users=[
                QuotaRow(
                    name=name_of(user),
                    **held._asdict(),
                    over=over(held, quotas.limits_of(user)),
                    limits=_shown(quotas.limits_of(user)) if user in quotas.own else msgspec.UNSET,
                )
                for user, held in users
            ],
        )

    def samples(self) -> Iterator[Sample]:
        for kind, times in self.quotas.refused.items():
            yield Sample("flockmq_quota_refused", times, (kind,))
        crossed = sum(bool(over(held, self.quotas.limits_of(user))) for user, held in self.users().items())
        yield Sample("flockmq_users_over_quota", crossed)

    def _storing(self) -> list[bytes]:
        return sorted(self.quotas.retained.large | self.quotas.delayed.large)

    def storing(self, user: bytes | None, more_bytes: int) -> AbstractAsyncContextManager[bool]:
        """Reserve quota for a write to the log. The context's value tells whether it is allowed. The bytes count
        as pending until the context ends."""
        if user is None or not self._have_users():
            return nullcontext(True)
        return self._on_its_way.take(user, more_bytes)

    # --- reports ------------------------------------------------------------------------------------------------------

    def _received(self, method: str, incarnation: str, body: bytes) -> None:
        note = _decode(body)
        if (method == HELD) != self._cluster.is_core:
            return
        before = self._reports.get(incarnation, _SILENT)
        self._reports[incarnation] = note
        if method == ELSEWHERE:  # this is a replicant, and only the few cores report to it
            self._add_up()
            return
        elsewhere, former = self.quotas.elsewhere, {row.user: row.held() for row in before.users}
        for row in note.users:
            known = elsewhere.get(row.user, NOTHING)
            elsewhere[row.user] = known.plus(row.held()).minus(former.get(row.user, NOTHING))
        if note.is_urgent:  # pass it on to the replicants soon
            self._look_soon()

    def _link_lost(self, incarnation: str) -> None:
        """Clients of that node reconnect to other nodes. Recount soon, so that their usage doesn't count twice."""
        if incarnation in self._reports and not self._cluster.is_linked(incarnation):
            self._look_soon()

    def _grew(self) -> None:
        self._is_urgent = True
        self._look_soon()

    def _look_soon(self) -> None:
        if self._soon is None:
            after_s = max(0.0, self._looked_s + bounds.QUOTA_TOLD_SOON_S - self._now_s())
            self._soon = asyncio.get_running_loop().call_later(after_s, self._look_now)

    def _look_now(self) -> None:
        self._soon = None
        self.look()

    def _send_reports(self) -> None:
        redis_bytes, here = self._maxmemory.size_bytes, self.quotas.largest()
        node_bytes = self._memory_bytes
        core_bytes = node_bytes if self._cluster.is_core else 0
        held = _encode(QuotaReport(redis_bytes, _rows(here), self._is_urgent, core_bytes, node_bytes))
        self._is_urgent = False
        total = {user: had.plus(here.get(user, NOTHING)) for user, had in self.quotas.elsewhere.items()} | {
            user: had for user, had in here.items() if user not in self.quotas.elsewhere
        }
        largest = self.quotas.told(total)
        for link in self._cluster.mesh.one_of_each():
            if link.peer.role in CORE_ROLES:
                link.note(HELD, held)
            elif self._cluster.is_core:
                its = {row.user: row.held() for row in self._reports.get(link.peer.incarnation, _SILENT).users}
                rest = {user: had.minus(its.get(user, NOTHING)) for user, had in largest.items()}
                elsewhere = QuotaReport(redis_bytes, _rows(rest), False, core_bytes, self._least_memory().node)
                link.note(ELSEWHERE, _encode(elsewhere))

    def _least_memory(self) -> LeastMemory:
        """As this node and those that report to it see it. What a node may use is known at its start, and counts at
        once."""
        notes, own = self._reports.values(), self._memory_bytes
        return LeastMemory(
            self._redis_bytes(),
            _least(own if self._cluster.is_core else 0, *(note.core_bytes for note in notes)),
            _least(own, *(note.node_bytes for note in notes)),
        )

    def _redis_bytes(self) -> int:
        """The `maxmemory` that this node or other nodes see. The largest counts, because a node that has just started
        may see too little. A node reports only what it sees itself, or a value would circulate for ever."""
        return max(self._maxmemory.size_bytes, *(note.redis_bytes for note in self._reports.values()), 0)

    def _seen_redis_bytes(self) -> int:
        rooms = {} if self._store is None else self._store.rooms()
        seen = [room.memory for room in rooms.values() if room.memory.used]
        return min((memory.limit or INFINITE for memory in seen), default=0)

    def _limits(self) -> Held | None:
        if not self._have_users():
            return None
        defaults = default_limits(self._least_memory())
        settings = [getattr(self._settings, f"max_{kind}") for kind in KINDS]
        return Held(*(default if limit is None else limit for limit, default in zip(settings, defaults, strict=True)))

    # --- alarms -------------------------------------------------------------------------------------------------------

    def _look_at_alarms(self) -> None:
        users = self.users()
        existing = [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(PREFIX)]
        still: set[str] = set()
        for user, held in users.items():
            name, limits = PREFIX + name_of(user), self.quotas.limits_of(user)
            if name in existing and over(held, limits, slack_percent=10):
                still.add(name)
            elif name not in existing and len(existing) < bounds.QUOTA_ALARMS_MAX and over(held, limits):
                what = _used_up(held, limits)
                text = f"user {name_of(user)!r} has used up {what}: more is refused (0x97) or dropped"
                log.error("%s", text)
                self._rlog.raise_alarm(name, text)
                existing.append(name)
                still.add(name)
        for name in existing:
            if name not in still:
                self._rlog.clear_alarm(name)


_SILENT: Final = QuotaReport(0, [])


def _least(*known_bytes: int) -> int:
    """0: unknown."""
    return min(filter(None, known_bytes), default=0)


def name_of(user: bytes) -> str:
    """The user's name in logs and alarms."""
    name = user.decode(errors="backslashreplace")
    return name[: bounds.LOGGED_MAX_CHARACTERS] if name else _ANONYMOUS


def _shown(limits: Held) -> dict[str, int | None]:
    """By key of the settings. None: no limit."""
    return {f"max_{kind}": limit if limit < INFINITE else None for kind, limit in zip(KINDS, limits, strict=True)}


def _used_up(held: Held, limits: Held) -> str:
    rows = zip(KINDS, held, limits, strict=True)
    amounts = {kind: (amount, limit) for kind, amount, limit in rows}
    return ", ".join(_amount(kind, *amounts[kind]) for kind in over(held, limits))


def _amount(kind: str, amount: int, limit: int) -> str:
    if kind.endswith("_bytes"):
        return f"its {kind} ({_sizes(amount, limit)})"
    return f"its {kind} ({amount} of {limit})"


def _sizes(amount_bytes: int, limit_bytes: int) -> str:
    """The two sizes, in the largest unit that isn't larger than the limit."""
    for size, unit in _UNITS:
        if limit_bytes >= size:
            return f"{amount_bytes / size:.1f} of {limit_bytes / size:.1f} {unit}"
    return f"{amount_bytes} of {limit_bytes} bytes"


def _rows(users: dict[bytes, Held]) -> list[UserUsage]:
    return [UserUsage(user, *held[:4]) for user, held in users.items()]


def _sum(reports: Iterable[list[UserUsage]]) -> dict[bytes, Held]:
    total: dict[bytes, Held] = {}
    for rows in reports:
        for row in rows:
            total[row.user] = total.get(row.user, NOTHING).plus(row.held())
    return total


def _most(reports: Iterable[list[UserUsage]]) -> dict[bytes, Held]:
    """Several cores report the same users, some with older numbers. Take the highest number of each."""
    found: dict[bytes, Held] = {}
    for rows in reports:
        for row in rows:
            known = found.get(row.user, NOTHING)
            found[row.user] = Held(*map(max, known, row.held()))
    return found
