"""Quotas: each user's usage in the cluster, and its limits. No I/O.

    sessions and subscriptions here ─▶ Usage, one per user ─────────┐
    reports of other nodes (node/user_quotas.py) ─▶ `elsewhere` ────┼─▶ is one more allowed?
    settings, and the user's own quotas (table `quotas`) ─▶ Quota ──┘

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
from weakref import WeakValueDictionary

from flockmq import bounds
from flockmq.default_callbacks import ignore, never

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
    """Bytes of their filters; of a shared one SHARED_FILTER_BYTES more."""
    retained_bytes: int = 0
    """Bytes of retained and delayed messages."""

    def plus(self, other: Held) -> Held:
        return Held(*map(int.__add__, self, other))

    def minus(self, other: Held) -> Held:
        return Held(*(max(0, mine - its) for mine, its in zip(self, other, strict=True)))


Own = Sequence[int | None]
"""The limits that one user has in place of the settings', in the order of KINDS. None: the settings' limit."""

KINDS: Final = Held._fields
_RETAINED: Final = KINDS.index("retained_bytes")
NOTHING: Final = Held()
ONE_SESSION: Final = Held(sessions=1)
UNLIMITED: Final = Held(*[INFINITE] * len(KINDS))


def may_grant(unreported: int, more: int, limit: int) -> bool:
    """Whether a node may grant `more` of a quota before it reports that. `unreported` is what it has granted and not
    reported yet. An amount larger than a share is granted if nothing is unreported."""
    return more <= 0 or unreported <= 0 or unreported + more <= limit // bounds.QUOTA_SHARES


class Quota:
    """The limits of one user, and what follows from them."""

    __slots__ = ("growth", "large", "limits", "shown_bytes")

    def __init__(self, limits: Held) -> None:
        self.limits = limits
        self.large = Held(*(max(1, limit // bounds.QUOTA_TOLD_PARTS) for limit in limits))
        """From this usage on, the node reports the user to other nodes."""
        self.growth = Held(*(max(1, limit // (2 * bounds.QUOTA_SHARES)) for limit in limits))
        """When the usage has grown by this, the node reports it soon."""
        self.shown_bytes = min(bounds.QUOTA_RETAINED_SHOWN_BYTES, self.large.retained_bytes)
        """A user that has stored as much is among the large ones."""


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
        self.subscription_bytes += _size_bytes(filter)
        self.note()

    def unsubscribed(self, filter: bytes) -> None:
        self.subscriptions -= 1
        self.subscription_bytes -= _size_bytes(filter)

    def queued(self, change_bytes: int) -> None:
        """The queued bytes of one of its sessions changed."""
        self.queued_bytes += change_bytes
        if change_bytes > 0:
            quotas = self._quotas
            quota = quotas.of_user(self.user) if quotas.own else quotas.of_settings
            if self.queued_bytes >= quota.large.queued_bytes:
                self.note()

    def may_begin(self) -> bool:
        """Whether the user may have one more durable session. Counts a refusal."""
        return self._allows(self.sessions + self._elsewhere().sessions + 1, 0, self._limits().sessions)

    def may_queue(self, size_bytes: int, *, is_away: bool) -> bool:
        """Whether these bytes may be queued. The last part of the quota is for connected clients, so that they can go
        on when offline clients have used up theirs."""
        quotas = self._quotas
        limit = (quotas.of_user(self.user) if quotas.own else quotas.of_settings).limits.queued_bytes
        if is_away and limit < INFINITE:
            limit = limit * bounds.QUOTA_AWAY_PERCENT // 100
        return self._allows(self.queued_bytes + self._elsewhere().queued_bytes + size_bytes, 1, limit)

    def may_subscribe(self, filter: bytes) -> bool:
        elsewhere, limits = self._elsewhere(), self._limits()
        number = self.subscriptions + elsewhere.subscriptions + 1
        size_bytes = self.subscription_bytes + elsewhere.subscription_bytes + _size_bytes(filter)
        return self._allows(number, 2, limits.subscriptions) and self._allows(size_bytes, 3, limits.subscription_bytes)

    def must_wait(self, more: Held) -> bool:
        """Whether this request must wait until the usage here is reported. A request that will be refused anyway
        doesn't wait."""
        if not self._quotas.must_report():
            return False
        here, limits = self.here(), self._limits()
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

    def _limits(self) -> Held:
        return self._quotas.of_user(self.user).limits

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
            more = Held(subscriptions=1, subscription_bytes=_size_bytes(filter))
            if usage.must_wait(more):
                usage.wait(more, self.make)
                return
            usage.subscribed(filter)
            self._counted.append(self._left.popleft())
        for filter in self._counted:
            usage.unsubscribed(filter)
        self._then()


class StoredBytes:
    """Bytes of each user in one table of the log. `quotas`: whose limits say who is large; None: nobody is."""

    def __init__(self, quotas: Quotas | None = None) -> None:
        self.by_user: dict[bytes, int] = {}
        self.large: set[bytes] = set()
        """Users with at least `Quota.shown_bytes`."""
        self._quotas = quotas

    def change(self, user: bytes, change_bytes: int) -> None:
        size = self.by_user.get(user, 0) + change_bytes
        if size > 0:
            self.by_user[user] = size
        else:
            self.by_user.pop(user, None)
        if self._quotas is not None and size >= self._quotas.of_user(user).shown_bytes:
            self.large.add(user)
        else:
            self.large.discard(user)

    def fresh(self) -> StoredBytes:
        return StoredBytes(self._quotas)

    def swap(self, fresh: StoredBytes) -> None:
        self.by_user, self.large = fresh.by_user, fresh.large


class Quotas:
    """One per node, for its clients and the sessions that it owns. `large_users` are those that are reported to
    other nodes; `largest` removes those that aren't large any more."""

    def __init__(self, limits: Held | None = UNLIMITED) -> None:
        self.elsewhere: dict[bytes, Held] = {}
        self.large_users: dict[bytes, Usage] = {}
        self.own: dict[bytes, Own] = {}
        """The users with limits of their own. Changed by `set_own` and `swap_own`."""
        self.must_recheck = False
        """Limits of many users changed: `recheck` must be called for `known_users`."""
        self.retained = StoredBytes(self)
        self.delayed = StoredBytes(self)
        self.waiting: dict[bytes, Usage] = {}
        """Users with requests that wait for the next report."""
        self.must_report: Callable[[], bool] = never
        """Whether there are other nodes to report to."""
        self.refused = dict.fromkeys(KINDS, 0)
        """Refusals, by quota."""
        self.on_growth: Callable[[], None] = ignore
        """Called when the next report should be sent soon, because a user's usage has grown much."""
        self._of: WeakValueDictionary[bytes, Usage] = WeakValueDictionary()
        self._have_users = True
        self.of_settings = Quota(UNLIMITED)
        """Of all users without their own."""
        self._of_own: dict[bytes, Quota] = {}
        """Made when first needed."""
        self.limit(limits)

    def limit(self, limits: Held | None) -> None:
        """Set the limits of all users without their own. None: clients have no users, so nobody has limits."""
        have_users, limits = limits is not None, UNLIMITED if limits is None else limits
        if (have_users, limits) != (self._have_users, self.limits):
            self._have_users, self.of_settings = have_users, Quota(limits)
            self._of_own = {}
            self.must_recheck = True

    @property
    def limits(self) -> Held:
        return self.of_settings.limits

    def of_user(self, user: bytes) -> Quota:
        """The quota that holds for this user."""
        if user not in self.own or not self._have_users:
            return self.of_settings
        quota = self._of_own.get(user)
        if quota is None:
            limits = zip(self.own[user], self.limits, strict=True)
            quota = Quota(Held(*(common if own is None else own for own, common in limits)))
            self._of_own[user] = quota
        return quota

    def limits_of(self, user: bytes) -> Held:
        return self.of_user(user).limits

    def set_own(self, user: bytes, own: Own | None) -> None:
        """The user's own limits changed. None: it has none any more."""
        if own is None:
            self.own.pop(user, None)
        else:
            self.own[user] = own
        self._of_own.pop(user, None)
        self.recheck(user)
        if user in self.large_users:
            self.on_growth()

    def swap_own(self, own: dict[bytes, Own]) -> None:
        self.own, self._of_own = own, {}
        self.must_recheck = True

    def known_users(self) -> list[bytes]:
        """The users that use something here, or have limits of their own."""
        return list(dict.fromkeys((*self._of.keys(), *self.own)))

    def recheck(self, user: bytes) -> None:
        """Find out again whether the user is large, after its limits changed."""
        self.retained.change(user, 0)
        self.delayed.change(user, 0)
        usage = self._of.get(user)
        if usage is not None:
            usage.note()

    def of(self, user: bytes) -> Usage:
        usage = self._of.get(user)
        if usage is None:
            usage = self._of[user] = Usage(self, user)
        return usage

    def may_store(self, user: bytes, more_bytes: int) -> bool:
        """Whether the user may store these bytes of retained or delayed messages. Counts a refusal."""
        return self.stored_bytes(user) + more_bytes <= self.limits_of(user).retained_bytes or self.refuse(_RETAINED)

    def stored_bytes(self, user: bytes) -> int:
        return self.retained.by_user.get(user, 0) + self.delayed.by_user.get(user, 0)

    def refuse(self, kind: int) -> bool:
        """Count a refusal. Returns False."""
        self.refused[KINDS[kind]] += 1
        return False

    def is_large(self, usage: Usage) -> bool:
        large = self.of_user(usage.user).large
        return (
            usage.sessions >= large.sessions
            or usage.queued_bytes >= large.queued_bytes
            or usage.subscriptions >= large.subscriptions
            or usage.subscription_bytes >= large.subscription_bytes
        )

    def has_grown(self, usage: Usage) -> bool:
        reported, growth = usage.reported, self.of_user(usage.user).growth
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
        return self.told({user: usage.here() for user, usage in self.large_users.items()})

    def report_sent(self) -> None:
        """A report was sent: continue the requests that waited for it."""
        for user, usage in list(self.waiting.items()):
            if not usage.go_on():
                del self.waiting[user]

    def total(self, user: bytes) -> Held:
        usage = self._of.get(user)
        held = self.elsewhere.get(user, NOTHING)._replace(retained_bytes=self.stored_bytes(user))
        return held if usage is None else held.plus(usage.here())

    def told(self, users: dict[bytes, Held]) -> dict[bytes, Held]:
        """Those of whom a report tells."""
        short = {user: held for user, held in users.items() if len(user) <= bounds.QUOTA_NAMES_TOLD_MAX_BYTES}
        return self.most(short)

    def most(self, users: dict[bytes, Held]) -> dict[bytes, Held]:
        """The QUOTA_USERS_TOLD_MAX users that use the largest part of a quota."""
        if len(users) <= bounds.QUOTA_USERS_TOLD_MAX:
            return users
        return dict(nlargest(bounds.QUOTA_USERS_TOLD_MAX, users.items(), lambda row: self.share(*row)))

    def share(self, user: bytes, held: Held) -> float:
        """The used part of the user's quota that is used most."""
        return max(amount / max(1, limit) for amount, limit in zip(held, self.limits_of(user), strict=True))


def _size_bytes(filter: bytes) -> int:
    return len(filter) + (bounds.SHARED_FILTER_BYTES if filter.startswith(b"$share/") else 0)


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
