"""Targets of messages other than this node's own sessions: other nodes, and slots.

A slot is a range of client ids; its owner has the durable sessions of these clients.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr, u8

from flockmq.mqtt.message import Publish
from flockmq.routing.message_id import ORIGIN
from flockmq.routing.sink import FLOWING, Sink


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class NodeTarget:
    """Another node as a target of messages. While it doesn't flow (`sink.FLOWING`), publishers to it pause."""

    __slots__ = ("flow",)

    def __init__(self) -> None:
        self.flow: u8 = FLOWING

    def slow_way(self, publisher: bytes) -> object | None:
        """What a publishing client must pause for now; None: nothing."""
        return None if self.flow == FLOWING else self

    def put_run(self, version: int, chunk: bytes) -> None:
        """Forward a run of complete QoS 0 PUBLISH packets, encoded for MQTT `version` (4 or 5). Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, packet_bytes: int) -> bool:
        """True if there is room for one more QoS 1 or 2 PUBLISH."""
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """Forward one QoS 1 or 2 PUBLISH. `on_accepted` is called once, when the node has it or need not be waited for.
        Returns False, without any effect, if the link's resend buffer is full; the publisher then gets 0x97.
        """
        raise NotImplementedError(type(self).__name__)

    def put_message(self, message: Publish, on_accepted: Callable[[], None], *, is_awaited: bool) -> bool:
        """As `put_acknowledged`. `is_awaited`: a publisher waits, so it must not take long. A message without an id
        isn't waited for long either: if it is published again later, its receivers would get it twice. What the log has
        by then is taken though there is no room: a refused message must not be retained.
        """
        version, packet = message.version, message.packet
        if message.origin:
            version, packet = version | ORIGIN, message.origin + packet
            if not is_awaited:
                return self.put_until_accepted(version, packet, on_accepted)
        if is_awaited and message.must_be_logged():
            self.put_logged(version, packet, on_accepted)
            return True
        return self.put_acknowledged(version, packet, on_accepted)

    def put_logged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> None:
        """As `put_acknowledged`, but the packet is always taken."""
        raise NotImplementedError(type(self).__name__)

    def put_once(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """As `put_acknowledged`, for a shared delivery with a message id: the receiver drops repeats."""
        return self.put_acknowledged(version | ORIGIN, origin + packet, on_accepted)

    def put_anew(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """As `put_once`, for a message that several nodes may assign again, in any order."""
        return self.put_once(version, origin, packet, on_accepted)

    def put_until_accepted(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """As `put_acknowledged`, but `on_accepted` is called only when the node has accepted the message or was purged.
        For a message without a waiting publisher."""
        return self.put_acknowledged(version, packet, on_accepted)


@mypyc_attr(acyclic=True)
class SlotTarget:
    """A slot as a target of messages: its owner has sessions that match."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@mypyc_attr(acyclic=True)
class SlotSet:
    """The slots of one fan-out. The dispatcher caches its queues to their owners in `queues` (see `queues_version`)."""

    __slots__ = ("numbers", "queues", "queues_version")

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.queues: list[Sink] = []
        self.queues_version: int = -1


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class SlotDispatcher:
    """Sends messages to slot owners, through one queue for each owner. `congested`: number of congested queues
    plus number of slots with a congested session. `is_short`: Redis is short of memory, so QoS 1 and 2 messages that
    would have to wait there are refused.
    """

    __slots__ = ("congested", "is_short")

    def __init__(self) -> None:
        self.congested: int = 0
        self.is_short: bool = False

    def put_run(self, slots: SlotSet, version: int, chunk: bytes, publisher: bytes) -> None:
        """Send a run of complete QoS 0 PUBLISH packets to the owners of these slots. Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        """True if there is room in all queues, and Redis has memory for the message. Not `can_be_refused`:
        the client can't be told of a refusal; then, while Redis is short of memory, owners drop the message for
        offline sessions.
        """
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        """Send one QoS 1 or 2 PUBLISH to the owners of these slots. Returns how many times `on_accepted` will be
        called: once, when all owners have committed it. Returns -1, without any effect, if some queue has no room; the
        publisher then gets 0x97. What the log has (`must_be_logged`) is taken all the same. While Redis is short of
        memory, the caller asks `takes` first.
        """
        raise NotImplementedError(type(self).__name__)

    def slow_queues(self, slots: SlotSet, publisher: bytes) -> list[Sink]:
        """The congested queues and slots for which this client should pause. Not the client's own slot: that may wait
        for acknowledgements from this client.
        """
        raise NotImplementedError(type(self).__name__)

    def way_to(self, slot: int, publisher: bytes) -> Sink:
        """The sink for which this client must pause to send to a slot: the slot, if a session there is congested, or
        its queue.
        """
        raise NotImplementedError(type(self).__name__)

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        """As `put_run`, for a shared delivery to one slot."""
        raise NotImplementedError(type(self).__name__)

    def takes_shared(self, slot: int, chunk_bytes: int) -> bool:
        """True if `put_shared` would accept this many bytes now."""
        raise NotImplementedError(type(self).__name__)

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        """Send one shared delivery of QoS 1 or 2 to one slot, which takes it only once if it has an id. `on_accepted`
        is called once, when it is committed there. Returns False, without any effect, if the queue has no room.
        """
        raise NotImplementedError(type(self).__name__)
