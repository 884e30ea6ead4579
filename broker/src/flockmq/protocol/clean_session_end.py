"""Sessions that end with their connections: what goes with them.

Pure: what follows is asked of the port.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt.message import Will
from flockmq.routing.router import Router
from flockmq.session.add_subscription import remove_subscriptions, unsubscribed
from flockmq.session.local_session import LocalSession


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalSessionsPort:
    """Who hears what becomes of them."""

    def publish(self, will: Will, session: LocalSession) -> None:
        """The will of this session's client is due."""
        raise NotImplementedError(type(self).__name__)

    def unrouted(self, session: LocalSession, filters: list[bytes]) -> None:
        """Nobody wants these filters any more but other nodes' clients; the session was the last."""
        raise NotImplementedError(type(self).__name__)

    def session_ended(self, session: LocalSession) -> None:
        """A session is gone for good, its subscriptions are out of the router."""
        raise NotImplementedError(type(self).__name__)


class LocalSessions:
    """One per node."""

    def __init__(self, router: Router, port: LocalSessionsPort) -> None:
        self._router = router
        self._port = port

    def leave(self, session: LocalSession, will: Will | None) -> None:
        """Its connection ended. The session ends with it, so the will has no delay [MQTT-3.1.3-9]."""
        if will is not None:
            self._port.publish(will, session)
        self.end(session)

    def end(self, session: LocalSession) -> None:
        unrouted = remove_subscriptions(self._router, session.subscriptions.all())
        session.subscriptions.clear()
        self._port.session_ended(session)
        session.erase()
        if unrouted:
            self._port.unrouted(session, unrouted)

    def unsubscribe(self, session: LocalSession, filters: list[bytes]) -> list[int]:
        """For each filter the reason code of UNSUBACK."""
        reasons, unrouted = unsubscribed(self._router, [session.subscriptions.remove(filter) for filter in filters])
        if unrouted:
            self._port.unrouted(session, unrouted)
        return reasons
