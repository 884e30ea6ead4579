"""Quotas: each user's usage in the cluster, and its limits. No I/O.

    sessions and subscriptions here ─▶ Usage, one per user ─────────┐
    reports of other nodes (node/user_quotas.py) ─▶ `elsewhere` ────┴─▶ is one more allowed?

Invariants:
- The cost of a change doesn't depend on the usage.
- `Usage` is exact for this node. `elsewhere` is from the last reports of other nodes, for users with at least one part
  of a quota there (QUOTA_TOLD_PARTS).
- This node grants a user at most one share of a quota (QUOTA_SHARES) before it reports that. Further requests wait
  until the report is sent; no answer is needed. So a user may exceed its quota by a few shares that other nodes don't
  know yet.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Final, NamedTuple
from weakref import ReferenceType, WeakValueDictionary

from flockmq import bounds
from flockmq.default_callbacks import ignore

log: Final = logging.getLogger(__name__)

INFINITE: Final = 1 << 62


class Held(NamedTuple):
    """The usage of one user, or its limits."""

    sessions: int = 0
    """Durable sessions."""
    queued_bytes: int = 0
    """Bytes of their messages, wills and client ids."""
    subscriptions: int = 0
    """Subscriptions of all sessions."""
    subscription_bytes: int = 0
    """Bytes of their filters."""
    retained_bytes: int = 0
    """Bytes of retained and delayed messages."""

    def plus(self, other: Held) -> Held:
        return Held(*map(int.__add__, self, other))

    def minus(self, other: Held) -> Held:
        return Held(*(max(0, mine - its) for mine, its in zip(self, other, strict=True)))


KINDS: Final = Held._fields
_RETAINED: Final = KINDS.index("retained_bytes")
NOTHING: Final = Held()
ONE_SESSION: Final = Held(sessions=1)
UNLIMITED: Final = Held(*[INFINITE] * len(KINDS))


def default_limits(redis_bytes: int) -> Held:
    """The default limits. `redis_bytes` is `maxmemory` of the smallest Redis server, or 0 if it has none. One user may
    use at most half of the memory that all clients may use (REDIS_SHORT_PART)."""
    of_redis = redis_bytes or INFINITE
    return Held(
        min(bounds.QUOTA_SESSIONS, of_redis // 16 // bounds.SESSION_STORED_BYTES),
        min(bounds.QUOTA_QUEUED_BYTES, of_redis // 8),
        bounds.QUOTA_SUBSCRIPTIONS,
        min(bounds.QUOTA_SUBSCRIPTION_BYTES, of_redis // 32),
        min(bounds.QUOTA_RETAINED_BYTES, of_redis // 8),
    )


def may_grant(unreported: int, more: int, limit: int) -> bool:
    """Whether a node may grant `more` of a quota before it reports that. `unreported` is what it has granted and not
    reported yet. An amount larger than a share is granted if nothing is unreported."""
    return more <= 0 or unreported <= 0 or unreported + more <= limit // bounds.QUOTA_SHARES


class MaxMemory:
    """`maxmemory` of the smallest Redis server, as one core sees it. `size_bytes` is INFINITE if there is no limit, and
    0 at first.

    A higher value counts at once. A lower value, and the first one, count after QUOTA_SHRINKS_AFTER_S, because queues
    are cut to a smaller quota, and an operator may set a lower value only for a moment."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._smaller_since: float | None = None

    def look(self, size_bytes: int, now_s: float) -> None:
        """Record the current value; 0 if it is unknown."""
        if size_bytes == 0:
            return
        if not (size_bytes >= self.size_bytes > 0 or size_bytes == INFINITE):
            if self._smaller_since is None:
                self._smaller_since = now_s
            if now_s - self._smaller_since < bounds.QUOTA_SHRINKS_AFTER_S:
                return
        self._smaller_since = None
        self.size_bytes = size_bytes


class Usage:
    """One user's usage on this node. It exists as long as a session refers to it."""

    __slots__ = (
        "__weakref__", "_quotas", "_waiting", "is_listed", "queued_bytes", "reported", "sessions",
        "subscription_bytes", "subscriptions", "user",
    )  # fmt: skip

    def __init__(self, quotas: Quotas, user: bytes) -> None:
        self._quotas = quotas
        self.user = user
        self.sessions = 0
        self.queued_bytes = 0
        self.subscriptions = 0
        self.subscription_bytes = 0
        self.is_listed = False
        self.reported = NOTHING
        """The usage in the last report."""
        self._waiting: deque[tuple[Held, Callable[[], None]]] = deque()

    def here(self) -> Held:
        return Held(self.sessions, self.queued_bytes, self.subscriptions, self.subscription_bytes)

    def began(self) -> None:
        self.sessions += 1
        self.note()

    def ended(self) -> None:
        self.sessions -= 1

    def subscribed(self, filter: bytes) -> None:
        self.subscriptions += 1
        self.subscription_bytes += len(filter)
        self.note()

    def unsubscribed(self, filter: bytes) -> None:
        self.subscriptions -= 1
        self.subscription_bytes -= len(filter)

    def queued(self, change_bytes: int) -> None:
        """The queued bytes of one of its sessions changed."""
        self.queued_bytes += change_bytes
        if change_bytes > 0 and self.queued_bytes >= self._quotas.large_queued_bytes:
            self.note()

    def may_begin(self) -> bool:
        """Whether the user may have one more durable session. Counts a refusal."""
        return self._allows(self.sessions + self._elsewhere().sessions + 1, 0, self._quotas.limits.sessions)

    def may_queue(self, size_bytes: int, *, is_away: bool) -> bool:
        """Whether these bytes may be queued. The last part of the quota is for connected clients, so that they can go
        on when offline clients have used up theirs."""
        limit = self._quotas.limits.queued_bytes
        if is_away and limit < INFINITE:
            limit = limit * bounds.QUOTA_AWAY_PERCENT // 100
        return self._allows(self.queued_bytes + self._elsewhere().queued_bytes + size_bytes, 1, limit)

    def may_subscribe(self, filter: bytes) -> bool:
        elsewhere, limits = self._elsewhere(), self._quotas.limits
        number = self.subscriptions + elsewhere.subscriptions + 1
        size_bytes = self.subscription_bytes + elsewhere.subscription_bytes + len(filter)
        return self._allows(number, 2, limits.subscriptions) and self._allows(size_bytes, 3, limits.subscription_bytes)

    def must_wait(self, more: Held) -> bool:
        """Whether this request must wait until the usage here is reported. A request that will be refused anyway
        doesn't wait."""
        if not self._quotas.must_report():
            return False
        here, limits = self.here(), self._quotas.limits
        total = here.plus(self._elsewhere()).plus(more)
        if any(asked and amount > limit for asked, amount, limit in zip(more, total, limits, strict=True)):
            return False
        return not all(map(may_grant, here.minus(self.reported), more, limits))

    def wait(self, more: Held, then: Callable[[], None]) -> None:
        """Call `then` when the usage here is reported. The caller must then check whether the quota allows the
        request."""
        self._waiting.append((more, then))
        self._quotas.waiting[self.user] = self
        self.is_listed = True
        self._quotas.large_users[self.user] = self
        self._quotas.on_growth()

    def go_on(self) -> bool:
        """The usage was reported: continue waiting requests. Returns whether some still wait."""
        while self._waiting and not self.must_wait(self._waiting[0][0]):
            try:
                self._waiting.popleft()[1]()
            except Exception:  # the other requests must go on
                log.exception("a request that waited for a quota failed")
        return bool(self._waiting)

    def _allows(self, amount: int, kind: int, limit: int) -> bool:
        return amount <= limit or self._quotas.refuse(kind)

    def _elsewhere(self) -> Held:
        return self._quotas.elsewhere.get(self.user, NOTHING)

    def note(self) -> None:
        """Include the user in reports if it is large, and report at once if its usage has grown much."""
        if not self.is_listed:
            if self._quotas.is_large(self):
                self.is_listed = True
                self._quotas.large_users[self.user] = self
        elif self._quotas.has_grown(self):
            self._quotas.on_growth()


class FilterRoom:
    """Waits until a user may have these new filters. It counts them one by one, each when it doesn't have to wait. When
    all are counted, it takes the counts back and calls `then`, which adds the filters."""

    def __init__(self, usage: Usage, filters: Sequence[bytes], then: Callable[[], None]) -> None:
        self._usage = usage
        self._left = deque(filters)
        self._counted: list[bytes] = []
        self._then = then

    def make(self) -> None:
        usage = self._usage
        while self._left:
            filter = self._left[0]
            more = Held(subscriptions=1, subscription_bytes=len(filter))
            if usage.must_wait(more):
                usage.wait(more, self.make)
                return
            usage.subscribed(filter)
            self._counted.append(self._left.popleft())
        for filter in self._counted:
            usage.unsubscribed(filter)
        self._then()


class StoredBytes:
    """Bytes of each user in one table of the log."""

    def __init__(self) -> None:
        self.by_user: dict[bytes, int] = {}
        self.large: set[bytes] = set()
        """Users with at least `shown_bytes`."""
        self.shown_bytes = bounds.QUOTA_RETAINED_SHOWN_BYTES

    def change(self, user: bytes, change_bytes: int) -> None:
        size = self.by_user.get(user, 0) + change_bytes
        if size > 0:
            self.by_user[user] = size
        else:
            self.by_user.pop(user, None)
        if size >= self.shown_bytes:
            self.large.add(user)
        else:
            self.large.discard(user)

    def swap(self, fresh: StoredBytes) -> None:
        self.by_user, self.large = fresh.by_user, fresh.large


class Quotas:
    """One per node, for its clients and the sessions that it owns. `large_users` are those that are reported to
    other nodes; `largest` removes those that aren't large any more."""

    def __init__(self, limits: Held = UNLIMITED) -> None:
        self.elsewhere: dict[bytes, Held] = {}
        self.large_users: dict[bytes, Usage] = {}
        self.retained = StoredBytes()
        self.delayed = StoredBytes()
        self.waiting: dict[bytes, Usage] = {}
        """Users with requests that wait for the next report."""
        self.must_report: Callable[[], bool] = _no_other_nodes
        """Whether there are other nodes to report to."""
        self.refused = dict.fromkeys(KINDS, 0)
        """Refusals, by quota."""
        self.on_growth: Callable[[], None] = ignore
        """Called when the next report should be sent soon, because a user's usage has grown much."""
        self._of: WeakValueDictionary[bytes, Usage] = WeakValueDictionary()
        self.limit(limits)

    def limit(self, limits: Held) -> None:
        self.limits = limits
        shown_bytes = max(1, min(bounds.QUOTA_RETAINED_SHOWN_BYTES, limits.retained_bytes // bounds.QUOTA_TOLD_PARTS))
        self.retained.shown_bytes = self.delayed.shown_bytes = shown_bytes
        self._large = Held(*(max(1, limit // bounds.QUOTA_TOLD_PARTS) for limit in limits))
        self.large_queued_bytes = self._large.queued_bytes
        self._growth = Held(*(max(1, limit // (2 * bounds.QUOTA_SHARES)) for limit in limits))

    def of(self, user: bytes) -> Usage:
        usage = self._of.get(user)
        if usage is None:
            usage = self._of[user] = Usage(self, user)
        return usage

    def may_store(self, user: bytes, more_bytes: int) -> bool:
        """Whether the user may store these bytes of retained or delayed messages. Counts a refusal."""
        return self.stored_bytes(user) + more_bytes <= self.limits.retained_bytes or self.refuse(_RETAINED)

    def stored_bytes(self, user: bytes) -> int:
        return self.retained.by_user.get(user, 0) + self.delayed.by_user.get(user, 0)

    def usages(self) -> Sequence[ReferenceType[Usage]]:
        return self._of.valuerefs()

    def refuse(self, kind: int) -> bool:
        """Count a refusal. Returns False."""
        self.refused[KINDS[kind]] += 1
        return False

    def is_large(self, usage: Usage) -> bool:
        large = self._large
        return (
            usage.sessions >= large.sessions
            or usage.queued_bytes >= large.queued_bytes
            or usage.subscriptions >= large.subscriptions
            or usage.subscription_bytes >= large.subscription_bytes
        )

    def has_grown(self, usage: Usage) -> bool:
        reported, growth = usage.reported, self._growth
        return (
            usage.sessions >= reported.sessions + growth.sessions
            or usage.queued_bytes >= reported.queued_bytes + growth.queued_bytes
            or usage.subscriptions >= reported.subscriptions + growth.subscriptions
            or usage.subscription_bytes >= reported.subscription_bytes + growth.subscription_bytes
        )

    def largest(self) -> dict[bytes, Held]:
        """The usage of the largest users here, for a report."""
        for user, usage in list(self.large_users.items()):
            usage.reported = usage.here()
            if not self.is_large(usage):
                usage.is_listed = False
                del self.large_users[user]
        return most({user: usage.here() for user, usage in self.large_users.items()}, self.limits)

    def report_sent(self) -> None:
        """A report was sent: continue the requests that waited for it."""
        for user, usage in list(self.waiting.items()):
            if not usage.go_on():
                del self.waiting[user]

    def total(self, user: bytes) -> Held:
        usage = self._of.get(user)
        held = self.elsewhere.get(user, NOTHING)._replace(retained_bytes=self.stored_bytes(user))
        return held if usage is None else held.plus(usage.here())


def _no_other_nodes() -> bool:
    return False


def share(held: Held, limits: Held) -> float:
    """The used part of the quota that is used most."""
    return max(amount / max(1, limit) for amount, limit in zip(held, limits, strict=True))


def most(users: dict[bytes, Held], limits: Held) -> dict[bytes, Held]:
    """The QUOTA_USERS_TOLD_MAX users that use the largest part of a quota."""
    if len(users) <= bounds.QUOTA_USERS_TOLD_MAX:
        return users
    return dict(nlargest(bounds.QUOTA_USERS_TOLD_MAX, users.items(), lambda row: share(row[1], limits)))


def over(held: Held, limits: Held, slack_percent: int = 0) -> list[str]:
    """The quotas that are used up, minus `slack_percent`."""
    rows = zip(KINDS, held, limits, _USED_UP_PERCENT, strict=True)
    return [
        kind
        for kind, amount, limit, percent in rows
        if limit < INFINITE and amount * 100 >= limit * (percent - slack_percent)
    ]


_USED_UP_PERCENT: Final = Held(95, bounds.QUOTA_AWAY_PERCENT - 5, 95, 95, 95)
"""A quota counts as used up from this percentage on, because large requests are refused before it is full."""
