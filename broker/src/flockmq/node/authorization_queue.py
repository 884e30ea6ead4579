"""Makes a client that has used up its share of authorization checks (`authorization_turns`) wait for its next turn,
with the rest of its SUBSCRIBE or with its next packets.

Invariants:
- A client that waits is paused, so its packets keep their order.
- If rules change while a SUBSCRIBE waits, here or for a service, its subscriptions are authorized again.
- If a client disconnects, the rest of its SUBSCRIBE isn't authorized, but the packets after it are still handled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flockmq.node.authorization_turns import AuthorizationTurns
from flockmq.node.subscription_reauthorization import SubscriptionReauthorization
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.client import PUBLISH
from flockmq.protocol.ports import AuthorizationPort
from flockmq.transport.reactor import Reactor


class AuthorizationQueue(AuthorizationPort):
    """Checks the authorization of clients in turns, and pauses those that must wait."""

    def __init__(
        self, turns: AuthorizationTurns, reauthorization: SubscriptionReauthorization, reactor: Reactor
    ) -> None:
        self._turns = turns
        self._reauthorization = reauthorization
        self._reactor = reactor

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        verdict = self._turns.authorize(channel, action, topic, qos, retain, done)
        is_publishing = action == PUBLISH and isinstance(channel, Channel) and channel.state == CONNECTED
        if is_publishing and self.must_wait(channel, channel.unpause):
            channel.pause()
        return verdict

    def must_wait(self, channel: Channel, go_on: Callable[[], None]) -> bool:
        if not self._turns.is_enough():
            return False
        self._turns.wait(channel, partial(self._go_on, channel, go_on), _user(channel))
        return True

    def _go_on(self, channel: Channel, go_on: Callable[[], None]) -> None:
        try:
            if not channel.has_ended():
                go_on()
                self._reactor.soon()
        except Exception:
            self._reactor.failed(channel)

    def rule_changes(self) -> int:
        return self._reauthorization.changes

    def authorize_again(self, channel: Channel) -> None:
        self._reauthorization.check_now(channel)


def _user(channel: Channel) -> bytes:
    """The user with whom the client shares its turns. A client without a user name has turns of its own."""
    return channel.principal.username or channel.client_id()
