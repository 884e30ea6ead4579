"""Ends clean sessions: removes their subscriptions, and calls the port for their wills and routes. No I/O."""

from __future__ import annotations

from functools import partial

from mypy_extensions import mypyc_attr

from flockmq.mqtt.message import Will
from flockmq.routing.router import Router
from flockmq.session.ended_subscriptions import EndedSubscriptions
from flockmq.session.local_session import LocalSession
from flockmq.session.remove_subscriptions import unsubscribed
from flockmq.time_slices import TimeSlices


@mypyc_attr(allow_interpreted_subclasses=True)
class CleanSessionEndPort:
    """Told what follows from the end of sessions."""

    def publish(self, will: Will, session: LocalSession) -> None:
        """The will of this session's client is due."""
        raise NotImplementedError(type(self).__name__)

    def unrouted(self, session: LocalSession, filters: list[bytes]) -> None:
        """No other session on this node subscribes to these filters."""
        raise NotImplementedError(type(self).__name__)

    def unrouted_later(self, session: LocalSession, filters: list[bytes]) -> None:
        """The same, some time after the end of a session with many filters. Its client may be back."""
        raise NotImplementedError(type(self).__name__)

    def session_ended(self, session: LocalSession) -> None:
        """A session has ended; it gets nothing more."""
        raise NotImplementedError(type(self).__name__)


class CleanSessionEnd:
    """Ends the clean sessions of one node."""

    def __init__(self, router: Router, port: CleanSessionEndPort, slices: TimeSlices) -> None:
        self.ended = EndedSubscriptions(router, slices)
        self._router = router
        self._port = port

    def leave(self, session: LocalSession, will: Will | None) -> None:
        """The connection ended, and so does its session; so the will has no delay [MQTT-3.1.3-9]."""
        if will is not None:
            self._port.publish(will, session)
        self.end(session)

    def end(self, session: LocalSession) -> None:
        unrouted = self.ended.take(session, partial(self._port.unrouted_later, session))
        self._port.session_ended(session)
        session.erase()
        if unrouted:
            self._port.unrouted(session, unrouted)

    def unsubscribe(self, session: LocalSession, filters: list[bytes]) -> list[int]:
        """Returns the reason codes for UNSUBACK, one for each filter."""
        reasons, unrouted = unsubscribed(self._router, [session.subscriptions.remove(filter) for filter in filters])
        if unrouted:
            self._port.unrouted(session, unrouted)
        return reasons
