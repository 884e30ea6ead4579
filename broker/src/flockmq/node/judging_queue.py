"""Clients for whom enough was judged in this turn: the rest of a SUBSCRIBE, and their next packets, wait for another.

What always holds: a client that waits is paused, so its packets keep their order. If rules change while a SUBSCRIBE
waits, its subscriptions are judged again as soon as they stand. If a client leaves, the rest of its SUBSCRIBE isn't
judged, but what it sent behind that is still done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flockmq.node.judging_turns import JudgingTurns
from flockmq.node.subscription_reauthorization import StandingSubscriptions
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.ports import JudgePort, PendingSubscribe
from flockmq.protocol.verdicts import PUBLISH
from flockmq.transport.reactor import Reactor


class JudgingQueue(JudgePort):
    """One per node."""

    def __init__(self, judging: JudgingTurns, standing: StandingSubscriptions, reactor: Reactor) -> None:
        self._judging = judging
        self._standing = standing
        self._reactor = reactor
        self._begun_under: dict[Channel, int] = {}
        """Whose SUBSCRIBE waits, and how often rules had changed when it began to wait."""

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        verdict = self._judging.authorize(channel, action, topic, qos, retain, done)
        if action == PUBLISH and isinstance(channel, Channel) and channel.state == CONNECTED:
            self._have_rest(channel)
        return verdict

    def _have_rest(self, publisher: Channel) -> None:
        if self._judging.is_enough():
            publisher.pause()
            self._judging.wait(publisher, partial(self._go_on, publisher), _user(publisher))

    def _go_on(self, publisher: Channel) -> None:
        if not publisher.has_ended():
            publisher.unpause()
            self._reactor.soon()

    def rests(self, subscribing: PendingSubscribe) -> bool:
        if not self._judging.is_enough():
            return False
        self._begun_under.setdefault(subscribing.channel, self._standing.changes)
        self._judging.wait(subscribing.channel, partial(self._judge, subscribing), _user(subscribing.channel))
        return True

    def _judge(self, subscribing: PendingSubscribe) -> None:
        channel = subscribing.channel
        try:
            if not channel.has_ended():
                if subscribing.packet.packet_id and channel.has_left():
                    subscribing.leave_off()
                else:
                    subscribing.judge()
                self._reactor.soon()
        except Exception:
            self._reactor.failed(channel)
        if not self._judging.is_waiting(channel) and self._begun_under.pop(channel) != self._standing.changes:
            self._standing.judge_now(channel)


def _user(channel: Channel) -> bytes:
    """With whom the client shares its turns; one without a user name shares them with nobody."""
    return channel.principal.username or channel.client_id()
