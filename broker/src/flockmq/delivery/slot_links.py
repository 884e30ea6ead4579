"""Connects `slot_sender` with links and the log, and passes incoming messages for durable sessions to the receiver.

It decides which link carries the queue to a core: any link to that core. When that link ends, it takes another one, or
the next that comes up. The queue to this node itself is a call. While something waits for the log or for a link, it is
checked every CONGESTION_CHECK_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery import frames
from flockmq.delivery.batch_queue import Carrier
from flockmq.delivery.session_packets import LatestLinks
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.cluster import Cluster
from flockmq.membership.frames import SlotAck
from flockmq.membership.link import Link
from flockmq.membership.slot_table import SEND
from flockmq.routing.sink import Sink
from flockmq.routing.slots import SlotMessage

log: Final = logging.getLogger(__name__)


class _LinkCarrier:
    """The carrier to another node."""

    def __init__(self, link: Link, addresses: Callable[[], bool]) -> None:
        self.link: Final = link
        self._addresses = addresses

    @property
    def data_bytes(self) -> int:
        return self.link.data_bytes

    def send(self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> None:
        is_addressed = number and self._addresses()
        frame = frames.addressed_frame if is_addressed else frames.batch_frame
        self.link.send_data(frame(number, epoch, messages, size_bytes), size_bytes)


class _LocalCarrier:
    """The carrier to this node's own sessions."""

    data_bytes = 0

    def __init__(self, take: Callable[[int, int, Sequence[SlotMessage], int], None]) -> None:
        self.send: Final = take


class SlotLinks:
    """One per node. The router gets `sender`. A core sets `receiver` before it owns slots."""

    def __init__(self, turn: list[Sink], cluster: Cluster) -> None:
        self.receiver: SlotReceiver | None = None
        self.on_drained: Callable[[Sink], None] = ignore
        """A congested queue flows again."""
        self.latest = LatestLinks()
        self._me = cluster.incarnation
        self._cluster = cluster
        self._addresses = cluster.version.gate(2)
        """Whether every node understands messages that name their slots."""
        self._loop = asyncio.get_running_loop()
        self.sender = SlotSender(
            turn, self._me, cluster.slots, self._find_carrier, self._drained, self._watch, self._loop.time
        )
        self._timer: asyncio.TimerHandle | None = None
        cluster.handlers.frames[frames.BATCH] = partial(self._received, frames.parse_batch)
        cluster.handlers.frames[frames.ADDRESSED] = partial(self._received, frames.parse_addressed)
        cluster.handlers.controls[SlotAck] = self._taken
        cluster.on_link_up.append(self.link_up)
        cluster.on_link_down.append(self.link_down)
        cluster.slots.listen(SEND, self.sender.slots_moved)
        cluster.on_node_gone.append(self.node_gone)
        cluster.on_renamed.append(self.rename)

    def rename(self, me: str) -> None:
        """This node is another incarnation, but the same source: messages that weren't accepted keep their numbers. Its
        queue to its former incarnation loses its carrier; its messages wait for the next owners of these slots."""
        self.sender.unlinked(self._me)
        self._me = me
        if self.receiver is not None:
            self.receiver.reset()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.receiver = None

    # --- links ------------------------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        core = link.peer.incarnation
        if self.sender.carrier_of(core) is None:
            self.sender.linked(core, _LinkCarrier(link, self._addresses))

    def link_down(self, link: Link) -> None:
        """If the peer isn't a member and this was its last link, forget what it sent. Either it was purged and sends no
        more, or it isn't a member yet and resends on its next link what wasn't accepted."""
        self.latest.link_down(link)
        core, is_member = link.peer.incarnation, link.peer.incarnation in self._cluster.nodes_table
        if not is_member and self.receiver is not None and self._cluster.mesh.link_of(core) is None:
            self.receiver.node_gone(core)
        carrier = self.sender.carrier_of(core)
        if not isinstance(carrier, _LinkCarrier) or carrier.link is not link:
            return
        self.sender.unlinked(core)
        if (other := self._find_carrier(core)) is not None:
            self.sender.linked(core, other)

    def node_gone(self, incarnation: str) -> None:
        """While there is a link, keep what came by it: the node may be a member again (a new generation of the log
        lacked its row)."""
        self.sender.gone(incarnation)
        if self.receiver is None:
            return
        if self._cluster.mesh.link_of(incarnation) is None:
            self.receiver.node_gone(incarnation)
        else:
            self.receiver.suspend(incarnation)

    def _received(self, parse: Callable[[bytes], tuple[int, int, list[SlotMessage]]], link: Link, body: bytes) -> None:
        """A batch, or QoS 0 runs, from another node."""
        (number, epoch, messages), size_bytes = parse(body), len(body)
        if self.latest.is_late(link, size_bytes):
            return
        receiver, sender = self.receiver, link.peer.incarnation
        if receiver is None:
            log.error("%s sent messages for sessions to this node, which runs none", sender)
            return
        if receiver.held_bytes(sender) > bounds.INTAKE_SENDER_MAX_BYTES:
            link.close(f"it sent {receiver.held_bytes(sender)} bytes of messages that can't be taken yet")
            return
        receiver.received(sender, partial(_answer, link), number, epoch, messages, size_bytes)
        self._watch()

    def _taken(self, link: Link, taken: SlotAck) -> None:
        """Another node's `SlotReceiver` acknowledges."""
        self._accepted(link.peer.incarnation, taken.number, taken.view, dict(taken.blocked))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accepted(self, core: str, number: int, view: int, blocked: dict[int, int]) -> None:
        self.sender.accepted(core, number, view, blocked)
        if self.sender.is_behind():
            self.sender.look()
            self._watch()

    def _find_carrier(self, core: str) -> Carrier | None:
        if core == self._me:
            return _LocalCarrier(self._take_here)
        link = self._cluster.mesh.link_of(core)
        return None if link is None else _LinkCarrier(link, self._addresses)

    def _take_here(self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> None:
        if self.receiver is not None:
            self.receiver.received(self._me, partial(self._accepted, self._me), number, epoch, messages, size_bytes)
            self._watch()

    def _drained(self, queue: Sink) -> None:
        self.on_drained(queue)

    def _watch(self) -> None:
        """Start the timer if something waits for which there is no event."""
        receiver = self.receiver
        waits = self.sender.congested or self.sender.is_behind() or (receiver is not None and receiver.is_holding)
        if waits and self._timer is None:
            self._timer = self._loop.call_later(bounds.CONGESTION_CHECK_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self.sender.is_behind():
            self.sender.look()
        if self.sender.congested:
            self.sender.update_flow()
        if self.receiver is not None:
            self.receiver.advance()
        self._watch()


def _answer(link: Link, number: int, view: int, blocked: dict[int, int]) -> None:
    link.control(SlotAck(number, view, tuple(blocked.items())))
