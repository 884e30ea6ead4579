"""The router of a home: of the sessions that run there, and of nobody else. Messages reach it as letters.

What always holds: `wanted` counts, slot by slot, the subscriptions of sessions of that slot by filter: what the log
routes to the slot. Members of shared subscriptions stand among those of the node's own clients.
"""

from __future__ import annotations

from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.session.durable import DurableSession
from flockmq.session.letter import Letter
from flockmq.session.publish import Publish, parse_publish
from flockmq.session.router import Router
from flockmq.session.subscription import Subscription


class HomedRouter(Router):
    """`own` is the router of this node's clients, with which it shares the turn, the counters and the groups."""

    def __init__(self, own: Router) -> None:
        super().__init__(own.counters, own.max_packet_size, own.max_topic_levels)
        self.turn = own.turn
        self.away4.turn = self.away5.turn = own.turn
        self.shared = own.shared
        self.wanted: dict[tuple[int, bytes], int] = {}
        self._members: dict[int, dict[Subscription, None]] = {}
        """Slot -> its members of shared subscriptions."""

    def add(self, subscription: Subscription) -> None:
        super().add(subscription)
        if is_shared(subscription.filter):
            self._members.setdefault(slot_of(subscription), {})[subscription] = None
        else:
            key = (slot_of(subscription), matching(subscription.filter))
            self.wanted[key] = self.wanted.get(key, 0) + 1

    def remove(self, subscription: Subscription) -> None:
        super().remove(subscription)
        if is_shared(subscription.filter):
            members = self._members.get(slot_of(subscription))
            if members is not None:
                members.pop(subscription, None)
                if not members:
                    del self._members[slot_of(subscription)]
        else:
            key = (slot_of(subscription), matching(subscription.filter))
            left = self.wanted.get(key, 0) - 1
            if left > 0:
                self.wanted[key] = left
            else:
                self.wanted.pop(key, None)

    def is_unwanted(self, subscription: Subscription) -> bool:
        filter = subscription.filter
        if is_shared(filter):
            return not self.shared.has(filter)
        return is_exclusive(filter) or (slot_of(subscription), matching(filter)) not in self.wanted

    def give_up_shared(self, slot: int) -> None:
        """The slot is another home's: its members of shared subscriptions get nothing more here."""
        for member in self._members.pop(slot, {}):
            self.shared.remove(member)

    def give(self, subscription: Subscription, message: Publish) -> None:
        """One message to one session."""
        self._deliver(subscription, message, None)


def slot_of(subscription: Subscription) -> int:
    session = subscription.session
    assert isinstance(session, DurableSession)
    return session.journal.slot


def message_of(letter: Letter) -> Publish:
    """Raises PacketError for what no node of ours sends."""
    packet = letter.packet
    _, body = remaining_length(packet, 1, letter.version)
    message = parse_publish(packet, 0, body, len(packet), letter.version)
    message.publisher = letter.publisher
    return message
