"""One shared subscription: its members on this node, and the number of members elsewhere.

Invariant: connected members come before offline ones.
"""

from __future__ import annotations

from flockmq.mqtt.topics import split_share
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import NodeTarget


class MemberList:
    """A list of members, picked by index. Removal takes constant time: the last member fills the gap."""

    __slots__ = ("_places", "members")

    def __init__(self) -> None:
        self.members: list[Subscription] = []
        self._places: dict[Subscription, int] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: Subscription) -> bool:
        return member in self._places

    def add(self, member: Subscription) -> None:
        if member not in self._places:
            self._places[member] = len(self.members)
            self.members.append(member)

    def discard(self, member: Subscription) -> None:
        place = self._places.pop(member, -1)
        if place < 0:
            return
        last = self.members.pop()
        if last is not member:
            self.members[place] = last
            self._places[last] = place


class Group:
    """All members of one shared subscription on this node, or in one slot that it owns. All members in the cluster are
    numbered: `peers[i]` (None: this node), called `names[i]`, has the numbers from `ends[i-1]` up to but excluding
    `ends[i]`. `numbered_at`: the change count for which this is valid.
    """

    __slots__ = ("away", "connected", "ends", "filter", "names", "numbered_at", "peers", "topic_filter", "turn")

    def __init__(self, share_filter: bytes) -> None:
        self.filter = share_filter
        self.topic_filter = split_share(share_filter)[1]
        self.connected = MemberList()
        self.away = MemberList()
        self.peers: list[NodeTarget | None] = []
        self.names: list[str] = []
        self.ends: list[int] = []
        self.numbered_at: int = -1
        self.turn: int = -1

    def total(self) -> int:
        return self.ends[len(self.ends) - 1] if self.ends else 0

    def place(self, member: Subscription) -> bool:
        """Put the member among the connected or the offline ones. False: it is there."""
        is_connected = member.session.is_connected()
        to, other = (self.connected, self.away) if is_connected else (self.away, self.connected)
        if member in to:
            return False
        other.discard(member)
        to.add(member)
        return True

    def has(self, member: Subscription) -> bool:
        return member in self.connected or member in self.away

    def discard(self, member: Subscription) -> None:
        self.connected.discard(member)
        self.away.discard(member)

    def members_here(self) -> list[Subscription]:
        """The members that get messages: the connected ones, or, if there are none, the offline ones."""
        return (self.connected if self.connected.members else self.away).members

    def is_empty(self) -> bool:
        return not self.connected.members and not self.away.members


class MembersElsewhere:
    """Members of one group elsewhere: incarnation, or slot as named in the log → (connected, offline)."""

    __slots__ = ("filter", "group", "nodes")

    def __init__(self, share_filter: bytes) -> None:
        self.filter = share_filter
        self.nodes: dict[str, tuple[int, int]] = {}
        self.group: Group | None = None


class PickedMember:
    """A picked member: a subscription here, or a node or slot (`peer`) and the member's number there."""

    __slots__ = ("number", "peer", "subscription")

    def __init__(self, peer: NodeTarget | None, subscription: Subscription | None, number: int) -> None:
        self.peer = peer
        self.subscription = subscription
        self.number = number
