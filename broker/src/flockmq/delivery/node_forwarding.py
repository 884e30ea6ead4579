"""All messages between this node and other nodes: one NodeSender each, and ReceivedSequences for incoming messages.

It decides which link carries a peer's messages: any link on which the peer has sent Resume. When that link ends, it
takes another one, or the next that comes up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery import frames
from flockmq.delivery.node_sender import NodeSender
from flockmq.delivery.session_packets import LatestLinks
from flockmq.membership.cluster import Cluster
from flockmq.membership.frames import Accepted, Resume
from flockmq.membership.link import Link
from flockmq.routing.message_id import process_of
from flockmq.routing.shared_frames import SHARED
from flockmq.routing.sink import Sink

log: Final = logging.getLogger(__name__)


class _HeldRun(NamedTuple):
    incarnation: str
    number: int
    version: int
    chunk: bytes


class NodeForwarding:
    """One per node. Set the callbacks before the cluster starts. While this node may be purged, incoming shared
    deliveries wait here and aren't accepted, because their sender may have given them to other nodes."""

    def __init__(self, turn: list[Sink], cluster: Cluster) -> None:
        self.on_received: Callable[[str, int, bytes], None] = ignore
        """(incarnation, MQTT version, run of PUBLISH packets) from another node."""
        self.on_drained: Callable[[NodeSender], None] = ignore
        """A congested peer flows again."""
        self.on_returned: Callable[[list[tuple[int, bytes]]], None] = ignore
        """(MQTT version, chunk) of each batch of shared deliveries that a purged node never accepted."""
        self.latest = LatestLinks()
        self._turn = turn
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, NodeSender] = {}
        self._former: dict[str, NodeSender] = {}
        self._inbox = ReceivedSequences()
        self._held: dict[str, list[_HeldRun]] = {}
        """By process, the shared deliveries that wait for `look`. A sender keeps only a bounded number until they are
        accepted."""
        self._accepting: dict[Link, int] = {}
        cluster.handlers.frames[frames.FORWARD] = self._run_received
        cluster.handlers.frames[frames.NUMBERED] = self._batch_received
        cluster.handlers.controls[Resume] = self._resume
        cluster.handlers.controls[Accepted] = self._accepted
        cluster.on_link_up.append(self._greet)
        cluster.on_link_down.append(self.link_down)
        cluster.on_node_joined.append(self.joined)
        cluster.on_node_gone.append(self.purge)
        cluster.on_renamed.append(self.reset)
        cluster.on_look.append(self.look)
        cluster.heartbeats.is_idle = self._is_idle

    # --- outgoing ---------------------------------------------------------------------------------------------------

    def peer(self, incarnation: str) -> NodeSender | None:
        """The sender to that node; None if it isn't a member."""
        if incarnation not in self._cluster.nodes_table or incarnation == self._cluster.incarnation:
            return None
        return self.sender(incarnation)

    def sender(self, incarnation: str) -> NodeSender:
        """The sender to that node, whether it is a member or not."""
        peer = self._peers.get(incarnation)
        if peer is None:
            if incarnation in self._former:
                peer = self._former.pop(incarnation)
                peer.reinstate()
            else:
                peer = self._made(incarnation)
            self._peers[incarnation] = peer
            self._use_spare_link(peer)
        return peer

    def _made(self, incarnation: str) -> NodeSender:
        peer = NodeSender(self._turn, incarnation, self._cluster.want_link, lambda: self._cluster.fencing.is_fenced)
        peer.on_drained = self.on_drained
        peer.on_returned = self.on_returned
        return peer

    def joined(self, incarnation: str) -> None:
        """If the node was briefly not a member, its routes still point to its old NodeSender, so that one is used
        again."""
        if incarnation in self._former:
            self.sender(incarnation)

    def _resume(self, link: Link, resume: Resume) -> None:
        """The peer of a new link sent the last number that it accepted."""
        link.resumed = True
        peer = self._peers.get(link.peer.incarnation)
        if peer is not None and peer.link is None:
            self._use(peer, link, resume.accepted)

    def _accepted(self, link: Link, accepted: Accepted) -> None:
        if (peer := self._peers.get(link.peer.incarnation)) is not None:
            peer.accepted(accepted.number)

    def link_down(self, link: Link) -> None:
        self.latest.link_down(link)
        self._accepting.pop(link, None)
        peer = self._peers.get(link.peer.incarnation)
        if peer is not None and peer.link is link:
            peer.disconnected()
            self._use_spare_link(peer)
            if (
                peer.link is None and peer.resend_messages
            ):  # the peer may have dialled that link, and may not dial again
                self._cluster.want_link(peer.incarnation)

    def purge(self, incarnation: str) -> None:
        """Stop waiting for this node. Its sender is kept for a while, because the node's row may come back although the
        node was never away: this node may have rejoined with old tables of a core that was behind."""
        self._inbox.forget(incarnation)
        if (peer := self._peers.pop(incarnation, None)) is not None:
            peer.purge()
            self._former[incarnation] = peer
            if len(self._former) > bounds.PEERS_FORMER_MAX:
                del self._former[next(iter(self._former))]

    def stop(self) -> None:
        for incarnation, peer in list(self._peers.items()):
            peer.on_returned = None
            self.purge(incarnation)

    @property
    def resend_messages(self) -> int:
        """QoS ≥ 1 messages that other nodes have not accepted yet."""
        return sum(peer.resend_messages for peer in self._peers.values())

    def awaited(self) -> list[str]:
        """The nodes that have not accepted all messages."""
        return [incarnation for incarnation, peer in self._peers.items() if peer.resend_messages]

    @property
    def dropped_bytes(self) -> int:
        """Dropped QoS 0 bytes for nodes that are members now."""
        return sum(peer.dropped for peer in self._peers.values())

    def _is_idle(self, incarnation: str, now: float) -> bool:
        peer = self._peers.get(incarnation)
        return peer is None or peer.idle(now)

    def _use_spare_link(self, peer: NodeSender) -> None:
        links = self._cluster.mesh.links_of(peer.incarnation)
        spare = next((link for link in links if link.resumed and link.is_open), None)
        if spare is not None:
            self._use(peer, spare, 0)

    def _use(self, peer: NodeSender, link: Link, accepted: int) -> None:
        link.on_room = peer.room
        peer.connected(link, accepted)

    # --- incoming ---------------------------------------------------------------------------------------------------

    def _greet(self, link: Link) -> None:
        """Send Resume first on every link: the peer sends no messages before it."""
        link.control(Resume(self.last_accepted(link.peer.incarnation)))

    def last_accepted(self, incarnation: str) -> int:
        held = self._held.get(process_of(incarnation))
        return held[0].number - 1 if held else self._inbox.accepted(incarnation)

    def reset(self, me: str) -> None:
        """This node is another incarnation. Messages that other nodes haven't accepted stay, with their numbers."""
        self._inbox.reset()
        self._held.clear()

    def look(self) -> None:
        """Called regularly: if this node is surely still a member, deliver what waited."""
        if not self._held or self._cluster.fencing.may_be_purged:
            return
        held, self._held = self._held, {}
        for batches in held.values():
            for batch in batches:
                self._deliver(batch.incarnation, batch.version, batch.chunk)
        for link in self._cluster.mesh.links():  # It may have come again by another link than at first.
            if link.is_open and process_of(link.peer.incarnation) in held:
                self._accept_soon(link)

    def _run_received(self, link: Link, body: bytes) -> None:
        version, chunk = frames.parse_forward(body)
        if self.latest.is_late(link, len(chunk)):
            return
        link.used_at = link.heard_at
        self._deliver(link.peer.incarnation, version, chunk)

    def _batch_received(self, link: Link, body: bytes) -> None:
        number, version, chunk = frames.parse_numbered(body)
        if not self.latest.is_late(link, len(chunk)):
            self.take_batch(link, number, version, chunk)

    def take_batch(self, link: Link, number: int, version: int, chunk: bytes) -> None:
        """Deliver a batch once, but accept it always; one Accepted per event-loop iteration."""
        link.used_at = link.heard_at
        incarnation = link.peer.incarnation
        try:
            new = self._inbox.accept(incarnation, number)
        except ValueError as error:
            link.close(str(error))
            return
        process = process_of(incarnation)
        if new and version & SHARED and (process in self._held or self._cluster.fencing.may_be_purged):
            self._held.setdefault(process, []).append(_HeldRun(incarnation, number, version, chunk))
        elif new:
            self._deliver(incarnation, version, chunk)
        self._accept_soon(link)

    def _accept_soon(self, link: Link) -> None:
        if not self._accepting:
            self._loop.call_soon(self._send_accepted)
        self._accepting[link] = self.last_accepted(link.peer.incarnation)

    def _send_accepted(self) -> None:
        accepting, self._accepting = self._accepting, {}
        for link, number in accepting.items():
            link.control(Accepted(number))

    def _deliver(self, incarnation: str, version: int, chunk: bytes) -> None:
        """If delivering a batch raises, the batch is still accepted, and logged as lost. Otherwise the sender would
        send it forever."""
        try:
            self.on_received(incarnation, version, chunk)
        except Exception:
            log.exception("messages of %d bytes from %s could not be delivered", len(chunk), incarnation)


class ReceivedSequences:
    """The last accepted batch number of each other node. One per node. No I/O.

    Numbers belong to the sender's process, not its incarnation: a node that was wrongly purged continues its numbers as
    another incarnation. That incarnation may even arrive here before the purge of the former. Invariant: each number of
    a node is accepted once, without gaps.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, int] = {}
        self._former: dict[str, int] = {}

    def accepted(self, incarnation: str) -> int:
        """The last accepted number, also if the node was purged since."""
        return self._last(incarnation) or 0

    def accept(self, incarnation: str, number: int) -> bool:
        """True: it is new, so deliver it. False: it is a repeat. Raises ValueError on a gap: the peer always resends
        from the first number that isn't accepted, so a gap is a defect of one of the two nodes."""
        last = self._last(incarnation)
        if last is not None and number <= last:
            return False
        if last is not None and number != last + 1:
            raise ValueError(f"batch {number} from {incarnation} came after {last}")
        self._accepted[process_of(incarnation)] = number
        return True

    def forget(self, incarnation: str) -> None:
        """The node was purged. It may come back, so its last number is kept for a while."""
        process = process_of(incarnation)
        if (last := self._accepted.pop(process, None)) is not None:
            self._former[process] = last
            if len(self._former) > bounds.PEERS_FORMER_MAX:
                del self._former[next(iter(self._former))]

    def reset(self) -> None:
        """This node is another incarnation: all peers number from 1 for it."""
        self._accepted.clear()
        self._former.clear()

    def _last(self, incarnation: str) -> int | None:
        process = process_of(incarnation)
        if (former := self._former.pop(process, None)) is not None:
            self._accepted[process] = former
        return self._accepted.get(process)
