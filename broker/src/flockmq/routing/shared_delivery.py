"""Shared subscriptions, `$share/group/filter`: each message goes to one member of each matching group in the cluster
(MQTT 5.0 section 4.8.2). No I/O.

For a member on another node the message is forwarded as an *item*: the group's filter, the number of the member, flags,
and complete PUBLISH packets. That node gives it to its member with that number. For a member with a durable session the
dispatcher sends the item to the slot (`routing.slots`). If the receiver has no member any more, it passes the item on,
at most SHARED_HOPS_MAX times (while the log accepts nothing, no node learns that members left).

A QoS 2 message of a durable session is assigned to a member before it is published (`propose`). The owner of the
publisher's session stores that, so a resend goes to the same member, from whatever node, and is recognized there by its
id (`routing.shared_frames`). If that node is gone, or nothing was stored, each node that gets a resend chooses a
member again, under a new id. By that id a node recognizes the message, so only one of its members gets it. A slot gets
it without an id, because a slot with a later number would drop it as a duplicate.

Invariants: a message is given to one member, or counted as dropped. An acknowledged message is with a member, committed
if its session is durable, or in the resend buffer of the link to its node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.bounds import SHARED_DEALS_MAX, SHARED_HOPS_MAX
from flockmq.default_callbacks import ignore, never
from flockmq.mqtt.message import Publish, StoredMessage, topic_of, transcode_run
from flockmq.routing import shared_frames
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.group import Group, PickedMember
from flockmq.routing.local_delivery import LocalDelivery
from flockmq.routing.message_id import ORIGIN, ORIGIN_BYTES
from flockmq.routing.shared_frames import (
    HOPPED,
    HOPS_SHIFT,
    PLAIN,
    SHARED,
    Deal,
    SharedItem,
    encoded_deal,
    find_deal,
    message_of,
    origin_in,
    packets_of,
    unwrap_named,
    without_identifiers,
    wrap,
    wrapped_bytes,
)
from flockmq.routing.shared_groups import (
    HASH_CLIENTID,
    HASH_TOPIC,
    ROUND_ROBIN,
    ROUND_ROBIN_PER_GROUP,
    STICKY,
    SharedGroups,
)
from flockmq.routing.sink import CONGESTED
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import NodeTarget

_TRIES_MAX: Final = 16


class SharedDelivery(SharedGroups):
    """One per router."""

    def __init__(self, delivery: LocalDelivery, on_filter: Callable[[bytes], None], seed: int | None) -> None:
        super().__init__(on_filter, seed)
        self._delivery = delivery
        self._counters = delivery.counters
        self.on_refused: Callable[[Group, Publish, Callable[[], None]], None] = _stays_dropped
        """Called if no member of the group had room for a message that can't be refused; it was counted as dropped. The
        third argument is to be called when a member has accepted it.
        """
        self.keeps_deals: Callable[[], bool] = never
        """True if all nodes understand stored assignments."""
        self._returned: list[StoredMessage] = []
        self._returning: bool = False

    def emit(self, group: Group, run: bytes, version: int, count: int, publisher: PausablePublisher) -> None:
        """Distribute a run of `count` QoS 0 packets without properties."""
        total = self.number_members(group)
        if total == 0:
            self._counters.dropped_no_member += count
            return
        client_id = publisher.client_id()
        strategy = self.strategy
        if count == 1 or total == 1 or strategy in (STICKY, HASH_CLIENTID):
            topic = topic_of(run) if strategy == HASH_TOPIC else b""
            self._emit_to(group, self.pick(group, client_id, topic), run, version, count, publisher)
            return
        packets = packets_of(run)
        if strategy in (ROUND_ROBIN, ROUND_ROBIN_PER_GROUP):
            first = self.next_turn(group, client_id, total, count)
            for place in range(min(total, count)):
                dealt = packets[place::total]
                target = self.at(group, (first + place) % total)
                self._emit_to(group, target, b"".join(dealt), version, len(dealt), publisher)
            return
        parts: dict[int, list[bytes]] = {}
        for packet in packets:
            number = self.number(group, client_id, topic_of(packet) if strategy == HASH_TOPIC else b"", total)
            part = parts.get(number)
            if part is None:
                parts[number] = [packet]
            else:
                part.append(packet)
        for number, part in parts.items():
            self._emit_to(group, self.at(group, number), b"".join(part), version, len(part), publisher)

    def _emit_to(
        self,
        group: Group,
        target: PickedMember,
        run: bytes,
        version: int,
        count: int,
        publisher: PausablePublisher | None,
    ) -> None:
        peer = target.peer
        if peer is None:
            assert target.subscription is not None
            self._run_here(group, target.subscription, run, version, count, publisher)
            return
        peer.put_run(version | SHARED, wrap(group.filter, target.number, PLAIN, run))
        self._counters.messages_forwarded += count
        self._pause_for(peer, publisher)

    def _pause_for(self, peer: NodeTarget, publisher: PausablePublisher | None) -> None:
        if publisher is not None and (way := peer.slow_way(publisher.client_id())) is not None:
            self._delivery.pauses.pause(way, publisher)

    def _run_here(
        self,
        group: Group,
        member: Subscription,
        run: bytes,
        version: int,
        count: int,
        publisher: PausablePublisher | None,
    ) -> None:
        sink = member.session.sink
        if not member.is_plain():
            for packet in packets_of(run):
                self._put(group, member, message_of(packet, version), publisher)
            return
        if sink.protocol_version != version:
            run = transcode_run(run, sink.protocol_version)
        self._delivery.emit_to(sink, run, count, publisher)

    def dispatch(
        self,
        group: Group,
        message: Publish,
        publisher: PausablePublisher | None,
        on_accepted: Callable[[], None],
        anew: bytes = b"",
    ) -> int:
        """Give one message to one member. Returns 1 if it is on another node, which will call `on_accepted` (QoS 1 and
        2), 0 if it is here; -1: there was no room. If one node or member has no room, another is tried. `anew`: the new
        id of a message that several nodes may assign again; each node delivers it once.
        """
        if message.deals:
            deal = find_deal(message.deals, group.filter)
            if deal is not None:
                return self._dispatch_once(group, deal, message, publisher, on_accepted)
        if self.number_members(group) == 0:
            self._counters.dropped_no_member += 1
            return 0
        target = self.pick(group, b"" if publisher is None else publisher.client_id(), message.topic)
        return self._dispatch_to(target, group, message, publisher, on_accepted, anew)

    def _dispatch_to(
        self,
        target: PickedMember,
        group: Group,
        message: Publish,
        publisher: PausablePublisher | None,
        on_accepted: Callable[[], None],
        anew: bytes = b"",
    ) -> int:
        full: list[NodeTarget] = []
        is_here = False
        for _ in range(_TRIES_MAX):
            peer = target.peer
            if peer is None:
                assert target.subscription is not None
                if anew and not is_here and not self._delivery.origins.is_new(anew):
                    return 0  # Another node assigned it to a member here.
                is_here = True
                if self._put(group, target.subscription, message, publisher):
                    return 0
            elif self._send(peer, group, target.number, 0, message, on_accepted, anew):
                self._pause_for(peer, publisher)
                return 0 if message.qos == 0 else 1
            else:
                full.append(peer)
            another = self.another(group, full)
            if another is None:
                break
            target = another
        self._counters.dropped_no_room += 1
        return -1

    # Delivery exactly once.

    def propose(self, groups: list[Group], message: Publish, publisher: bytes) -> bytes:
        """Choose a member with room in each group for a QoS 2 message. The owner of the publisher's session stores the
        result.
        """
        if not groups or not self.keeps_deals():
            return b""
        proposed: list[bytes] = []
        for group in groups[:SHARED_DEALS_MAX]:
            if self.number_members(group):
                target = self._with_room(group, self.pick(group, publisher, message.topic), message)
                proposed.append(encoded_deal(group.filter, self.owner(group, target), target.number))
        return b"".join(proposed)

    def _with_room(self, group: Group, target: PickedMember, message: Publish) -> PickedMember:
        """The target, or another one with room, if there is any. A member here is checked when it gets the message."""
        full: list[NodeTarget] = []
        other: PickedMember | None = target
        while other is not None and len(full) < _TRIES_MAX:
            peer = other.peer
            if peer is None or peer.takes(wrapped_bytes(group.filter, message.packet)):
                return other
            full.append(peer)
            other = self.another(group, full)
        return target

    def _dealt_to(self, deal: Deal) -> NodeTarget | None:
        return None if deal.owner == self.me else self.find_peer(deal.owner)

    def _dispatch_once(
        self,
        group: Group,
        deal: Deal,
        message: Publish,
        publisher: PausablePublisher | None,
        on_accepted: Callable[[], None],
    ) -> int:
        """As `dispatch`, but never returns -1. Sends the message to the member that was chosen before; to another one
        only if that member can't be reached.
        """
        name = origin_in(message.origin, group.filter)
        peer = self._dealt_to(deal)
        if peer is not None:
            item = wrap(group.filter, deal.number, 0, message.packet)
            if peer.put_once(message.version | SHARED, name, item, on_accepted):
                self._counters.messages_forwarded += 1
                self._pause_for(peer, publisher)
                return 1
            asked = -1
            self._counters.dropped_no_room += 1
        elif not self._delivery.origins.is_new(name):  # This node has assigned it before.
            return 0
        else:
            asked = self._deal_here(group, deal, name, message, publisher, on_accepted)
        if asked < 0:
            self.on_refused(group, _without_id(message), on_accepted)
            return 1
        return asked

    def _deal_here(
        self,
        group: Group,
        deal: Deal,
        name: bytes,
        message: Publish,
        publisher: PausablePublisher | None,
        on_accepted: Callable[[], None],
    ) -> int:
        """As `dispatch`, for a message that was assigned to this node, or to one that is gone."""
        if deal.owner == self.me:
            here = self.dealt_here(group, deal.number, b"" if publisher is None else publisher.client_id())
            if here is not None:
                return self._dispatch_to(here, group, message, publisher, on_accepted)
        return self.dispatch(group, _without_id(message), publisher, on_accepted, shared_frames.anew(name))

    def make_room(self, groups: list[Group], message: Publish) -> bool:
        """Make sure that each group has a member that accepts this message now, or no member. If no other member has
        room, a member here is disconnected for its full queue. Returns False if some group has no room.
        """
        for group in groups:
            deal = find_deal(message.deals, group.filter)
            peer = None if deal is None else self._dealt_to(deal)
            if peer is not None:
                if not peer.takes(ORIGIN_BYTES + wrapped_bytes(group.filter, message.packet)):
                    return False
                continue
            tries = 0
            while self.number_members(group) and not self._has_room(group, message):
                here = group.members_here()
                if not here or tries == _TRIES_MAX:
                    return False
                tries += 1
                here[0].session.sink.overflow()
        return True

    def _has_room(self, group: Group, message: Publish) -> bool:
        size = len(message.packet)
        for peer in group.peers:
            if peer is not None:
                if peer.takes(wrapped_bytes(group.filter, message.packet)):
                    return True
            elif any(member.qos == 0 or member.session.takes(size) for member in group.members_here()):
                return True
        return False

    def _send(
        self,
        peer: NodeTarget,
        group: Group,
        number: int,
        flags: int,
        message: Publish,
        on_accepted: Callable[[], None],
        anew: bytes = b"",
    ) -> bool:
        item = wrap(group.filter, number, flags, message.packet)
        if message.qos == 0:
            peer.put_run(message.version | SHARED, item)
        elif anew:
            if not peer.put_anew(message.version | SHARED, anew, item, on_accepted):
                return False
        elif not peer.put_acknowledged(message.version | SHARED, item, on_accepted):
            return False
        self._counters.messages_forwarded += 1
        return True

    def _put(self, group: Group, member: Subscription, message: Publish, publisher: PausablePublisher | None) -> bool:
        """Give one message to a member here. Returns False if its session ended because its queue was full."""
        qos = message.qos if message.qos < member.qos else member.qos
        retain = message.retain and member.retain_as_published
        session, delivery = member.session, self._delivery
        taken = delivery.send(session, message, qos, retain, member.identifiers, group.filter)
        if publisher is not None and session.sink.flow == CONGESTED:
            delivery.pauses.pause(session.sink, publisher)
        return taken

    def take(self, version: int, chunk: bytes) -> None:
        """Deliver items that another node forwarded for members here. If `version` says so, each has an id and is taken
        only once. Raises PacketError if it is malformed.
        """
        plain = version & ~ORIGIN
        names: list[bytes] = []
        for place, item in enumerate(unwrap_named(version, chunk, names)):
            if names and not self._delivery.origins.is_new(names[place]):
                continue
            group = self.groups.get(item.filter)
            if group is None:
                self.pass_on(item, plain, None)
            else:
                self.deal(group, item, plain)

    def deal(self, group: Group, item: SharedItem, version: int) -> None:
        """Give the item to the member here with its number, or, if that has no room, to any other. Raises
        PacketError.
        """
        member = self.member_here(group, item.number)
        if item.flags & PLAIN:
            count = len(packets_of(item.run))
            self._counters.messages_arrived += count
            self._run_here(group, member, item.run, version, count, None)
            return
        message = message_of(item.run, version)
        self._counters.messages_arrived += 1
        if not self._put(group, member, message, None):
            self._again(self.group(item.filter), message)

    def pass_on(self, item: SharedItem, version: int, here: NodeTarget | None) -> None:
        """There is no member `here` any more (None: on this node): give the items to others. Raises PacketError."""
        packets = packets_of(item.run)
        hops = item.flags >> HOPS_SHIFT
        group = self.group(item.filter) if hops < SHARED_HOPS_MAX else None
        target = None if group is None else self.another(group, [] if here is None else [here])
        if group is None or target is None:
            self._counters.dropped_no_member += len(packets)
            return
        flags = HOPPED | hops + 1 << HOPS_SHIFT
        for packet in packets:
            message = message_of(packet, version)
            if target.peer is None:
                assert target.subscription is not None
                if not self._put(group, target.subscription, message, None):
                    self._again(self.group(item.filter), message)
            elif not self._send(target.peer, group, target.number, flags, message, ignore):
                self._counters.dropped_no_room += 1
                self.on_refused(group, message, ignore)

    def returned(self, version: int, chunk: bytes) -> None:
        """Items for a node that was purged before it accepted them: give them to other members."""
        names: list[bytes] = []
        for place, item in enumerate(unwrap_named(version, chunk, names)):
            if names and not self._delivery.origins.is_new(names[place]):
                continue
            group, anew = self.group(item.filter), shared_frames.anew(names[place]) if names else b""
            for packet in packets_of(item.run):
                self._again(group, message_of(packet, version & ~ORIGIN), anew)

    def redispatch(self, left: list[StoredMessage]) -> None:
        """Give messages of an ended session, which has left the groups, to other members."""
        self._returned += left
        if self._returning or not self._returned:
            return  # A member that gets them may end because its queue is full, which calls this again.
        self._returning = True
        try:
            while self._returned:
                returned, self._returned = self._returned, []
                for stored in returned:
                    self._redispatch(stored)
        finally:
            self._returning = False

    def _redispatch(self, stored: StoredMessage) -> None:
        now_s = self._delivery.host.now_s
        packet = stored.now(now_s)
        if not packet:
            self._counters.dropped_expired += 1
            return
        message = message_of(without_identifiers(packet) if stored.version == 5 else packet, stored.version)
        if stored.expires_s != 0.0:
            message.expiry_s = int(stored.expires_s - now_s) + 1
        self._again(self.group(stored.share), message)

    def _again(self, group: Group | None, message: Publish, anew: bytes = b"") -> None:
        if group is None:
            self._counters.dropped_no_member += 1
        elif self.dispatch(group, message, None, ignore, anew) >= 0:
            self._counters.shared_redispatched += 1
        else:
            self.on_refused(group, message, ignore)


def _without_id(message: Publish) -> Publish:
    return message_of(message.packet, message.version)


def _stays_dropped(group: Group, message: Publish, accepted: Callable[[], None]) -> None:
    """Used until somebody retries."""
    accepted()
