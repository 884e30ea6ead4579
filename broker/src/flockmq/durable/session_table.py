"""The durable sessions of one core, connected or offline; ends expired sessions and publishes delayed wills.

No I/O: the caller passes the clock, and the port does what follows. Invariants:
- `by_id` has each session once, connected or offline.
- An offline session stays in the router, so that messages for it are queued.
- A delayed will belongs to an offline session. It is published once: when its delay has passed or its session ends,
  whichever comes first [MQTT-3.1.3-9].
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import AWAY_SESSIONS_MAX, SESSIONS_EXPIRED_PER_TICK_MAX
from flockmq.durable.session import DurableSession
from flockmq.mqtt.message import NEVER_EXPIRES, Will
from flockmq.mqtt.topics import matching
from flockmq.routing.router import Router
from flockmq.session.ended_subscriptions import EndedSubscriptions
from flockmq.session.moved_members import MovedMembers
from flockmq.session.remove_subscriptions import unsubscribed
from flockmq.time_slices import TimeSlices

_NEVER_S: Final = float("inf")


@mypyc_attr(acyclic=True)
class OfflineSession:
    """A durable session without a connection. Times are monotonic seconds."""

    __slots__ = ("expires_s", "session", "will", "will_s")

    def __init__(self, session: DurableSession, expires_s: float, will: Will | None, will_s: float) -> None:
        self.session = session
        self.expires_s = expires_s
        self.will = will
        self.will_s = will_s

    def next_s(self) -> float:
        """When something must be done next."""
        return self.expires_s if self.will is None else min(self.will_s, self.expires_s)


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionEnds:
    """Told when a session ends, when a will is due, and when a filter is no longer used."""

    def publish(self, will: Will, session: DurableSession) -> None:
        """A will is due."""
        raise NotImplementedError(type(self).__name__)

    def unrouted(self, session: DurableSession, filters: list[bytes]) -> None:
        """No other session of this core subscribes to these filters."""
        raise NotImplementedError(type(self).__name__)

    def session_ended(self, session: DurableSession) -> None:
        """The session ended. It still has its messages, but no subscriptions."""
        raise NotImplementedError(type(self).__name__)


class SessionTable:
    """One per core. At most `away_max` sessions may be offline."""

    def __init__(
        self, router: Router, port: SessionEnds, slices: TimeSlices, away_max: int = AWAY_SESSIONS_MAX
    ) -> None:
        self.by_id: dict[bytes, DurableSession] = {}
        self.away: dict[bytes, OfflineSession] = {}
        self.ended = EndedSubscriptions(router, slices)
        self._members = MovedMembers(router, slices)
        self._router = router
        self._port = port
        self._away_max = away_max
        self._due: list[tuple[float, int, bytes, OfflineSession]] = []
        self._count = 0

    def open(self, fresh: DurableSession, clean_start: bool) -> tuple[DurableSession, bool]:
        """Returns the session of a new connection, and whether it existed before (Session Present). It is the existing
        session, or `fresh`, which was made from the CONNECT [MQTT-3.1.2-4, MQTT-3.1.2-5]. No other connection has
        the session now.
        """
        client_id = fresh.client_id
        known = self.find(client_id)
        if known is None or clean_start:
            if known is not None:
                self.end(known)
            if fresh.meta.expiry_s:
                self.by_id[client_id] = fresh
                fresh.opened()
            return fresh, False
        self.come_back(known)
        known.resume(fresh)
        self.match_again(known)
        self._router.counters.sessions_resumed += 1
        return known, True

    def match_again(self, session: DurableSession) -> None:
        """The session's client connected or disconnected."""
        self._router.sink_changed(session)
        self._members.connected_or_left(session)

    def find(self, client_id: bytes) -> DurableSession | None:
        """The session of this client id. First it does what is due, even if no tick has done so yet."""
        absence = self.away.get(client_id)
        if absence is not None and absence.next_s() <= self._router.host.now_s:
            self._act(absence, self._router.host.now_s)
        return self.by_id.get(client_id)

    def come_back(self, session: DurableSession) -> None:
        """The session is no longer offline; its delayed will is cancelled."""
        if self.away.pop(session.client_id, None) is not None:
            self._router.counters.sessions_away -= 1

    def leave(self, session: DurableSession, will: Will | None, now_s: float) -> bool:
        """The connection ended. A will without delay is published at once. Returns True if the session continues."""
        delay_s = 0 if will is None else min(will.delay_s, session.meta.expiry_s)
        if will is not None and delay_s == 0:
            self._port.publish(will, session)
            will = None
        if session.meta.expiry_s == 0:
            self.end(session)
            return False
        session.leave(self._router.away5 if session.sink.protocol_version == 5 else self._router.away4, will)
        self.match_again(session)
        self.by_id[session.client_id] = session
        self._keep_away(session, will, now_s, now_s + delay_s)
        return True

    def _keep_away(self, session: DurableSession, will: Will | None, left_s: float, will_s: float) -> None:
        expires_s = _NEVER_S if session.meta.expiry_s == NEVER_EXPIRES else left_s + session.meta.expiry_s
        absence = OfflineSession(session, expires_s, will, will_s)
        self.away[session.client_id] = absence
        self._router.counters.sessions_away += 1
        self._schedule(absence)
        if len(self.away) > self._away_max:
            self.end(self._first_due().session)

    def restore(self, session: DurableSession, will: Will | None, left_s: float) -> None:
        """Add an offline session that another owner ran before. The client disconnected at `left_s`, or that time is in
        the future and the client is expected to reconnect until then.
        """
        for subscription in session.subscriptions.all():
            self._router.add(subscription)
            self._router.began(subscription)
        self.by_id[session.client_id] = session
        delay_s = 0 if will is None else min(will.delay_s, session.meta.expiry_s)
        self._keep_away(session, will, left_s, left_s + delay_s)

    def depart(self, session: DurableSession) -> None:
        """The session goes to another owner: remove it here, without publishing its will."""
        client_id = session.client_id
        if self.by_id.get(client_id) is session:
            del self.by_id[client_id]
            if self.away.pop(client_id, None) is not None:
                self._router.counters.sessions_away -= 1
        for subscription in session.subscriptions.all():
            self._router.remove(subscription)
            self._router.ended(subscription)
        session.abandon()

    def end(self, session: DurableSession) -> None:
        """End the session: remove its subscriptions, and publish its delayed will now."""
        if self.by_id.get(session.client_id) is session:
            del self.by_id[session.client_id]
            absence = self.away.pop(session.client_id, None)
            if absence is not None:
                self._router.counters.sessions_away -= 1
                if absence.will is not None:
                    self._port.publish(absence.will, session)
                    absence.will = None
        unrouted = self.ended.take(session, partial(self._unrouted_later, session))
        self._port.session_ended(session)
        session.erase()
        if unrouted:  # Only after its end: if a crash brings the session back, its routes are still there.
            self._port.unrouted(session, unrouted)

    def _unrouted_later(self, session: DurableSession, filters: list[bytes]) -> None:
        """If the client has a new session, that may be claiming exclusive filters: only routes are removed. Claims that
        it doesn't use are found by `DurableExclusiveClaims.look`.
        """
        is_back = session.client_id in self.by_id
        self._port.unrouted(session, [matching(filter) for filter in filters] if is_back else filters)

    def unsubscribe(self, session: DurableSession, filters: list[bytes]) -> list[int]:
        """Returns the reason codes for UNSUBACK, one for each filter."""
        reasons, unrouted = unsubscribed(self._router, [session.remove_subscription(filter) for filter in filters])
        if unrouted:
            self._port.unrouted(session, unrouted)
        return reasons

    def tick(self, now_s: float) -> None:
        """Publish wills that are due and end expired sessions, at most SESSIONS_EXPIRED_PER_TICK_MAX of them."""
        for _ in range(SESSIONS_EXPIRED_PER_TICK_MAX):
            if not self._due or self._due[0][0] > now_s:
                break
            _, _, client_id, absence = heappop(self._due)
            if self.away.get(client_id) is not absence:
                continue  # The client reconnected, or the session ended.
            if not self._act(absence, now_s):
                self._schedule(absence)

    def _act(self, absence: OfflineSession, now_s: float) -> bool:
        """Do what is due for one offline session. Returns True if the session expired."""
        if absence.expires_s <= now_s:
            self._router.counters.sessions_expired += 1
            self.end(absence.session)
            return True
        if absence.will is not None and absence.will_s <= now_s:
            self._port.publish(absence.will, absence.session)
            absence.will = None
            absence.session.will_published()
        return False

    def _first_due(self) -> OfflineSession:
        """The offline session with the earliest due time; if none has a due time, the one that went offline first."""
        due = self._due
        while due:
            absence = due[0][3]
            if self.away.get(absence.session.client_id) is absence:
                return absence
            heappop(due)
        return next(iter(self.away.values()))

    def _schedule(self, absence: OfflineSession) -> None:
        next_s = absence.next_s()
        if next_s == _NEVER_S:
            return
        # Most entries are of sessions whose clients reconnected long ago.
        if len(self._due) > 2 * len(self.away) + 1024:
            self._due = [due for due in self._due if self.away.get(due[2]) is due[3]]
            heapify(self._due)
        self._count += 1
        heappush(self._due, (next_s, self._count, absence.session.client_id, absence))
