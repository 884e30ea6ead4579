"""Members of shared subscriptions, and the strategies that pick one of them. No I/O; random numbers come from a seed.

A node knows its own members one by one. Of other nodes, and of slots, it knows the number of members. All members in
the cluster are numbered from 0: node by node and slot by slot, in the order of their names. Picking a member means
choosing a number. So every member is equally likely, wherever it is, and two nodes that hash the same key choose the
same member.

Invariant: a group without members in the cluster isn't kept.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final
from zlib import crc32

from flockmq.bounds import SHARED_TURNS_MAX
from flockmq.default_callbacks import ignore
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.group import Group, MembersElsewhere, PickedMember
from flockmq.routing.oldest import forget_oldest
from flockmq.routing.sink import FLOWING
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import NodeTarget

RANDOM: Final = 0
ROUND_ROBIN: Final = 1
ROUND_ROBIN_PER_GROUP: Final = 2
STICKY: Final = 3
LOCAL: Final = 4
HASH_CLIENTID: Final = 5
HASH_TOPIC: Final = 6

STRATEGIES: Final = {
    "random": RANDOM,
    "round_robin": ROUND_ROBIN,
    "round_robin_per_group": ROUND_ROBIN_PER_GROUP,
    "sticky": STICKY,
    "local": LOCAL,
    "hash_clientid": HASH_CLIENTID,
    "hash_topic": HASH_TOPIC,
}
"""Names as in EMQX. The turn (`round_robin`) and the sticky member are kept per publisher; in `round_robin_per_group`
the turn is kept per group and node. `local` picks a random connected member on the publisher's node, if there is
one.
"""

_PASSED_OVER_MAX: Final = 8


class SharedGroups:
    """One per router. `me`: this node's incarnation. `find_peer` returns None for a node that isn't a member of the
    cluster, and a `SlotPeer` for a slot. `on_count` is called when a member of a group on this node comes,
    leaves or moves, with the filter and the user; `on_filter` when a filter gets or loses a group.
    """

    def __init__(self, on_filter: Callable[[bytes], None], seed: int | None) -> None:
        self.strategy: int = ROUND_ROBIN
        self.me: str = ""
        self.groups: dict[bytes, Group] = {}
        self.find_peer: Callable[[str], NodeTarget | None] = ignore
        self.on_count: Callable[[bytes, bytes], None] = ignore
        self._on_filter = on_filter
        self._random = Random(seed)  # noqa: S311 (it spreads load)
        self._local = FilterIndex()
        self._remote = FilterIndex()
        self.elsewhere: dict[bytes, MembersElsewhere] = {}
        self._changes: int = 0
        self._turns: dict[tuple[bytes, bytes], int] = {}
        self._sticky: dict[tuple[bytes, bytes], PickedMember] = {}

    # Members.

    def add(self, member: Subscription) -> None:
        group = self.groups.get(member.filter)
        if group is None:
            group = self.group(member.filter) or Group(member.filter)
            self._local.add(group.topic_filter, group)
            self.groups[member.filter] = group
            self._on_filter(group.topic_filter)
        group.place(member)
        self._counted(member)

    def remove(self, member: Subscription) -> None:
        group = self.groups.get(member.filter)
        if group is None:
            return
        group.discard(member)
        self._counted(member)
        if group.is_empty():
            del self.groups[member.filter]
            self._local.remove(group.topic_filter, group)
            others = self.elsewhere.get(member.filter)
            if others is not None:
                others.group = group
            self._on_filter(group.topic_filter)

    def moved(self, member: Subscription) -> None:
        """The member's client connected or disconnected."""
        group = self.groups.get(member.filter)
        if group is not None and group.has(member) and group.place(member):
            self._counted(member)

    def has(self, share_filter: bytes) -> bool:
        """True if there are members here."""
        return share_filter in self.groups

    def count(self, share_filter: bytes) -> tuple[int, int]:
        """Number of members here: (connected, offline)."""
        group = self.groups.get(share_filter)
        return (0, 0) if group is None else (len(group.connected), len(group.away))

    def members(self) -> int:
        """Number of members of all groups here."""
        return sum(len(group.connected) + len(group.away) for group in self.groups.values())

    def remembered(self) -> int:
        """Number of stored turns and sticky members."""
        return len(self._turns) + len(self._sticky)

    def _counted(self, member: Subscription) -> None:
        self._changes += 1
        self.on_count(member.filter, member.session.takes_turns_as())

    # Members elsewhere.

    def replace_remote(self, index: FilterIndex, elsewhere: dict[bytes, MembersElsewhere]) -> None:
        """Replace what is known of other nodes' members, after a bootstrap. `index`: by topic filter. Constant time."""
        self._remote = index
        self.elsewhere = elsewhere
        self._changes += 1

    def others_changed(self) -> None:
        """A count, or the members of the cluster, changed."""
        self._changes += 1

    def group(self, share_filter: bytes) -> Group | None:
        """The group, if there is any member in the cluster."""
        group = self.groups.get(share_filter)
        if group is not None:
            return group
        others = self.elsewhere.get(share_filter)
        if others is None:
            return None
        if others.group is None:
            others.group = Group(share_filter)
        return others.group

    def is_used(self) -> bool:
        """True if there is any group."""
        return bool(self.groups or self.elsewhere)

    def match(self, topic: bytes) -> list[object]:
        """The groups that match this topic, each once."""
        matched = self._local.match(topic)
        elsewhere = self._remote.match(topic)
        if not elsewhere:
            return matched
        known = set(matched)
        for others in elsewhere:
            assert isinstance(others, MembersElsewhere)
            group = self.group(others.filter)
            if group is not None and group not in known:
                matched.append(group)
        return matched

    def is_elsewhere(self, groups: list[Group]) -> bool:
        """True if some member of these groups is on another node."""
        return any(group.filter in self.elsewhere for group in groups)

    def owner(self, group: Group, target: PickedMember) -> str:
        """The node or slot of a picked member: its incarnation, or the slot's name."""
        return self.me if target.peer is None else group.names[group.peers.index(target.peer)]

    # Picking.

    def number_members(self, group: Group) -> int:
        """Assign numbers to the members, if anything changed. Returns how many members there are."""
        if group.numbered_at == self._changes:
            return group.total()
        others = self.elsewhere.get(group.filter)
        nodes = {} if others is None else others.nodes
        complete = self._number_those(group, nodes, False)
        if not group.ends:
            complete = self._number_those(group, nodes, True) and complete
        group.numbered_at = self._changes if complete else -1
        return group.total()

    def _number_those(self, group: Group, nodes: dict[str, tuple[int, int]], away: bool) -> bool:
        """Number the connected members, or the offline ones. Returns False if some node isn't known as a member yet."""
        group.peers = []
        group.names = []
        group.ends = []
        end = 0
        complete = True
        here = len(group.away if away else group.connected)
        names = list(nodes)
        if here:
            names.append(self.me)
        names.sort()
        for name in names:
            peer: NodeTarget | None = None
            count = here
            if name in nodes:
                connected, others_away = nodes[name]
                count = others_away if away else connected
                if count == 0:
                    continue
                peer = self.find_peer(name)
                if peer is None:
                    complete = False
                    continue
            end += count
            group.peers.append(peer)
            group.names.append(name)
            group.ends.append(end)
        return complete

    def pick(self, group: Group, publisher: bytes, topic: bytes) -> PickedMember:
        if self.strategy == STICKY:
            return self._stick(group, publisher)
        return self.at(group, self.number(group, publisher, topic, group.total()))

    def number(self, group: Group, publisher: bytes, topic: bytes, total: int) -> int:
        strategy = self.strategy
        if strategy == HASH_CLIENTID:
            return crc32(publisher) % total
        if strategy == HASH_TOPIC:
            return crc32(topic) % total
        if strategy in (ROUND_ROBIN, ROUND_ROBIN_PER_GROUP):
            return self.next_turn(group, publisher, total, 1)
        if strategy == LOCAL and group.connected.members:
            place = group.peers.index(None)
            start = group.ends[place - 1] if place > 0 else 0
            return start + self._random.randrange(group.ends[place] - start)
        return self._random.randrange(total)

    def next_turn(self, group: Group, publisher: bytes, total: int, count: int) -> int:
        """The number whose turn it is; the next `count - 1` follow it. The first turn begins at a random number."""
        if self.strategy == ROUND_ROBIN_PER_GROUP:
            first = group.turn if group.turn >= 0 else self._random.randrange(total)
            group.turn = (first + count) % total
            return first % total
        turns = self._turns
        key = (publisher, group.filter)
        first = turns.get(key, -1)
        if first < 0:
            first = self._random.randrange(total)
            if len(turns) >= SHARED_TURNS_MAX:
                forget_oldest(turns)
        turns[key] = (first + count) % total
        return first % total

    def at(self, group: Group, number: int) -> PickedMember:
        start = 0
        for place, end in enumerate(group.ends):
            if number < end:
                peer = group.peers[place]
                subscription = self._passing_over(group, number - start) if peer is None else None
                return PickedMember(peer, subscription, number - start)
            start = end
        raise AssertionError(f"no member has the number {number} of {start}")

    def another(self, group: Group, but: list[NodeTarget]) -> PickedMember | None:
        """A random member that isn't on one of these nodes; None: there is none."""
        self.number_members(group)
        numbers: list[int] = []
        start = 0
        for place, end in enumerate(group.ends):
            peer = group.peers[place]
            if peer is None or peer not in but:
                numbers.append(start + self._random.randrange(end - start))
            start = end
        return self.at(group, self._random.choice(numbers)) if numbers else None

    def member_here(self, group: Group, number: int) -> Subscription:
        """The member here for a number that another node chose."""
        if self.strategy != STICKY:
            return self._passing_over(group, number)
        key = (number.to_bytes(4, "big"), group.filter)
        target = self._stuck(group, key)
        if target is None or target.subscription is None:
            members = group.members_here()
            target = PickedMember(None, members[self._random.randrange(len(members))], 0)
            self._remember(key, target)
        assert target.subscription is not None
        return target.subscription

    def dealt_here(self, group: Group, number: int, publisher: bytes) -> PickedMember | None:
        """The member here for a number that was assigned to this node; None: there is no member here any more."""
        if not group.members_here():
            return None
        if self.strategy == STICKY and self.number_members(group):
            stuck = self._stick(group, publisher)
            if stuck.peer is None:
                return stuck
        return PickedMember(None, self.member_here(group, number), number)

    def _passing_over(self, group: Group, number: int) -> Subscription:
        """The member with that number; if it doesn't keep up, one of the next ones that does. With a hash strategy,
        always the former.
        """
        members = group.members_here()
        count = len(members)
        member = members[number % count]
        if member.session.sink.flow == FLOWING or self.strategy in (HASH_CLIENTID, HASH_TOPIC):
            return member
        for step in range(1, min(count, _PASSED_OVER_MAX)):
            other = members[(number + step) % count]
            if other.session.sink.flow == FLOWING:
                return other
        return member

    def _stick(self, group: Group, publisher: bytes) -> PickedMember:
        """The publisher's sticky member: the same one until it disconnects."""
        key = (publisher, group.filter)
        target = self._stuck(group, key)
        if target is None:
            target = self.at(group, self._random.randrange(group.total()))
            target.number = crc32(publisher)
            self._remember(key, target)
        return target

    def _stuck(self, group: Group, key: tuple[bytes, bytes]) -> PickedMember | None:
        target = self._sticky.get(key)
        if target is None:
            return None
        if target.subscription is not None:
            roster = group.connected if group.connected.members else group.away
            return target if target.subscription in roster else None
        return target if target.peer in group.peers else None

    def _remember(self, key: tuple[bytes, bytes], target: PickedMember) -> None:
        if len(self._sticky) >= SHARED_TURNS_MAX:
            forget_oldest(self._sticky)
        self._sticky[key] = target
