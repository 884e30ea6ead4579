"""Sends messages to one other node.

QoS 0 runs are flushed once per event-loop iteration, and may be lost with the link. QoS ≥ 1 packets are gathered into
numbered batches, one per iteration and MQTT version. Invariants:

- Batches from this node's incarnation to that one are numbered without gaps, and sent in that order.
- A batch stays in memory until the peer accepted its number or was purged. When a link comes up, all batches in memory
  are sent again, in order. The peer takes each number once (`node_forwarding.ReceivedSequences`).
- `on_accepted` is called once for each packet that was taken: when the peer accepts it, or is purged. If a publisher
  waits, it is called after FORWARD_WAIT_S at the latest, unless this node is fenced: then the cluster may have purged
  it.
- The waiting data is bounded in bytes and messages. Beyond that QoS 0 is dropped and counted, and QoS ≥ 1 is refused,
  except what the log has: there was room when it was written to the log.
- Shared deliveries that a purged peer never accepted are returned (`on_returned`), so that another member gets them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import never
from flockmq.delivery.batch_queue import in_frames, is_congested
from flockmq.delivery.frames import forward_header, numbered_header
from flockmq.membership.link import Link
from flockmq.routing.shared_frames import SHARED
from flockmq.routing.sink import CONGESTED, FLOWING, Sink, TurnEnd
from flockmq.routing.targets import NodeTarget

PACKET_MAX_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES - 64
"""A longer packet fits into no frame."""


class NodeBatch:
    """QoS ≥ 1 packets of one iteration: one numbered frame. `callbacks` may be called before the peer accepted it,
    because publishers wait for them. `on_acceptance` ones are called only after that."""

    __slots__ = ("callbacks", "number", "on_acceptance", "packets", "sealed_at", "size_bytes", "version")

    def __init__(self, number: int, version: int, sealed_at: float) -> None:
        self.number = number
        self.version = version
        self.packets: list[bytes] = []
        self.size_bytes = 0
        self.sealed_at = sealed_at
        self.callbacks: list[Callable[[], None]] = []
        self.on_acceptance: list[Callable[[], None]] = []

    def add(self, packet: bytes, on_accepted: Callable[[], None], must_be_accepted: bool) -> None:
        self.packets.append(packet)
        self.size_bytes += len(packet)
        (self.on_acceptance if must_be_accepted else self.callbacks).append(on_accepted)

    def release(self) -> None:
        """Call back for waiting publishers, once."""
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()

    def accepted(self) -> None:
        self.release()
        on_acceptance, self.on_acceptance = self.on_acceptance, []
        for callback in on_acceptance:
            callback()


class NodeSender(NodeTarget):
    """Messages for one incarnation of another node."""

    def __init__(
        self,
        turn: list[Sink],
        incarnation: str,
        on_wanted: Callable[[str], None],
        is_fenced: Callable[[], bool] = never,
    ) -> None:
        super().__init__()
        self.incarnation = incarnation
        self.purged = False
        self.dropped = 0
        """QoS 0 bytes that were dropped because too much was waiting."""
        self.used_at = 0.0
        self.on_drained: Callable[[NodeSender], None] | None = None
        """Called when `flow` is FLOWING again."""
        self.on_returned: Callable[[list[tuple[int, bytes]]], None] | None = None
        """Called with (version, chunk) of each batch of shared deliveries that a purged peer never accepted."""
        self._on_wanted = on_wanted
        self._is_fenced = is_fenced
        self._loop = asyncio.get_running_loop()
        self.link: Link | None = None
        self._turn_end = TurnEnd(turn, self.flush)
        self._runs: dict[int, list[bytes]] = {}
        self._run_bytes = 0
        self._numbered: list[tuple[int, bytes, Callable[[], None], bool]] = []
        self._resend: deque[NodeBatch] = deque()
        self._waiting: deque[NodeBatch] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_number = 0
        self._first_lost = 1
        self.resend_bytes = 0
        self.resend_messages = 0

    # --- the turn ---------------------------------------------------------------------------------------------------

    def put_run(self, version: int, chunk: bytes) -> None:
        """Forward a run of whole QoS 0 PUBLISH packets, encoded for MQTT `version`, or shared deliveries of such
        packets if the version says so. Never waits."""
        runs = self._runs.get(version)
        if runs is None:
            self._runs[version] = [chunk]
        else:
            runs.append(chunk)
        self._run_bytes += len(chunk)
        self._turn_end.flush_at_turn_end()

    def takes(self, packet_bytes: int) -> bool:
        return self.purged or (
            self.resend_bytes + packet_bytes <= bounds.PEER_RESEND_MAX_BYTES
            and self.resend_messages < bounds.PEER_RESEND_MAX_MESSAGES
            and packet_bytes <= PACKET_MAX_BYTES
        )

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """Forward one QoS ≥ 1 PUBLISH. False: the buffer is full or the packet too long, and nothing was taken."""
        return self._put(version, packet, on_accepted, must_be_accepted=False)

    def put_logged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> None:
        if self.purged:
            on_accepted()
        else:
            self._take(version, packet, on_accepted, must_be_accepted=False)

    def put_until_accepted(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        return self._put(version, packet, on_accepted, must_be_accepted=True)

    def _put(self, version: int, packet: bytes, on_accepted: Callable[[], None], *, must_be_accepted: bool) -> bool:
        if self.purged:
            on_accepted()
            return True
        if not self.takes(len(packet)):
            return False
        self._take(version, packet, on_accepted, must_be_accepted=must_be_accepted)
        return True

    def _take(self, version: int, packet: bytes, on_accepted: Callable[[], None], *, must_be_accepted: bool) -> None:
        self.resend_bytes += len(packet)
        self.resend_messages += 1
        self._numbered.append((version, packet, on_accepted, must_be_accepted))
        self._turn_end.flush_at_turn_end()

    def flush(self) -> None:
        """Pass this iteration's messages to the link. Without a link they wait, within bounds, and a link is
        requested."""
        self.used_at = self._loop.time()
        if self._numbered:
            self._seal()
        if self.link is None:
            if not self.purged:
                self._on_wanted(self.incarnation)
            if self.purged or self._run_bytes > bounds.PEER_FORWARD_MAX_BYTES:
                self._drop_runs()
            return
        if self._run_bytes:
            self._send_runs(self.link)
        if self.flow == FLOWING and is_congested(False, self.link.data_bytes):
            self.flow = CONGESTED

    # --- the link ---------------------------------------------------------------------------------------------------

    def connected(self, link: Link, accepted: int) -> None:
        """A link is up, and the peer told its last accepted number: resend the rest, in order."""
        self.link = link
        self.accepted(accepted)
        for batch in self._resend:
            self._send_batch(link, batch)
        if self._run_bytes:
            self._send_runs(link)

    def disconnected(self) -> None:
        self.link = None
        self.room()

    def accepted(self, number: int) -> None:
        """The peer has all batches up to `number`."""
        while self._resend and self._resend[0].number <= number:
            batch = self._resend.popleft()
            self.resend_bytes -= batch.size_bytes
            self.resend_messages -= len(batch.packets)
            batch.accepted()

    def room(self) -> None:
        """The link has written its queued data."""
        if self.flow != FLOWING and (self.link is None or not is_congested(True, self.link.data_bytes)):
            self.flow = FLOWING
            if self.on_drained is not None:
                self.on_drained(self)

    def purge(self) -> None:
        """The node was purged: nothing waits for it any longer."""
        self.purged = True
        self._seal()
        self._first_lost = self._resend[0].number if self._resend else self._last_number + 1
        returned = [(batch.version, b"".join(batch.packets)) for batch in self._resend if batch.version & SHARED]
        if returned and self.on_returned is not None:
            self.on_returned(returned)
        self.accepted(self._last_number)
        self._drop_runs()
        self.disconnected()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reinstate(self) -> None:
        """The node isn't gone, and is the same incarnation. The batches that it may have missed are sent as empty
        ones."""
        self.purged = False
        lost = range(self._first_lost, self._last_number + 1)
        self._resend.extend(NodeBatch(number, 5, 0.0) for number in lost)

    def idle(self, now: float) -> bool:
        """True if its link may be closed: nothing waits, and no messages were sent for PEER_IDLE_S."""
        return not self._resend and not self._turn_end.dirty and now - self.used_at > bounds.PEER_IDLE_S

    # --- inside -----------------------------------------------------------------------------------------------------

    def _send_runs(self, link: Link) -> None:
        if link.data_bytes > bounds.PEER_FORWARD_MAX_BYTES:
            self._drop_runs()
            return
        runs, self._runs, self._run_bytes = self._runs, {}, 0
        for version, chunks in runs.items():
            self.dropped += sum(len(chunk) for chunk in chunks if len(chunk) > PACKET_MAX_BYTES)
            fitting = (chunk for chunk in chunks if len(chunk) <= PACKET_MAX_BYTES)
            for some, size_bytes in in_frames(fitting, len):
                link.send_data([forward_header(version, size_bytes), *some], size_bytes)

    def _drop_runs(self) -> None:
        self.dropped += self._run_bytes
        self._runs, self._run_bytes = {}, 0

    def _seal(self) -> None:
        """Make numbered batches of this iteration's QoS ≥ 1 packets, and send them if there is a link."""
        now = self._loop.time()
        taken, self._numbered = self._numbered, []
        sealed: list[NodeBatch] = []
        for version, packet, on_accepted, must_be_accepted in taken:
            batch = sealed[-1] if sealed else None
            if (
                batch is None
                or batch.version != version
                or batch.size_bytes + len(packet) > bounds.LINK_FORWARD_FRAME_BYTES
            ):
                self._last_number += 1
                batch = NodeBatch(self._last_number, version, now)
                sealed.append(batch)
            batch.add(packet, on_accepted, must_be_accepted)
        self._resend.extend(sealed)
        self._waiting.extend(sealed)
        if self.link is not None:
            for batch in sealed:
                self._send_batch(self.link, batch)
        if sealed and self._timer is None:
            self._timer = self._loop.call_later(bounds.FORWARD_WAIT_S, self._overdue)

    def _send_batch(self, link: Link, batch: NodeBatch) -> None:
        header = numbered_header(batch.number, batch.version, batch.size_bytes)
        link.send_data([header, *batch.packets], batch.size_bytes)

    def _overdue(self) -> None:
        """Publishers have waited FORWARD_WAIT_S: release them, the messages are in this buffer. Not if this node may
        have been purged, because then other nodes may have continued without it."""
        self._timer = None
        if self._is_fenced():
            self._timer = self._loop.call_later(bounds.FORWARD_WAIT_S, self._overdue)
            return
        horizon = self._loop.time() - bounds.FORWARD_WAIT_S + 0.001
        while self._waiting and (self._waiting[0].sealed_at <= horizon or not self._waiting[0].callbacks):
            self._waiting.popleft().release()
        if self._waiting:
            delay = self._waiting[0].sealed_at - horizon
            self._timer = self._loop.call_later(max(delay, 0.01), self._overdue)
