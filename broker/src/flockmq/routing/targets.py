"""Where a message goes beside this node's own clients: other nodes, and the owners of slots.

A slot is a range of client ids; its owner has the sessions that last of these clients.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from flockmq.mqtt.message import Publish
from flockmq.routing.message_id import ORIGIN
from flockmq.routing.sink import Sink


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class NodeTarget(Sink):
    """Another node, as a target of messages."""

    __slots__ = ()

    def way(self, publisher: bytes) -> Sink:
        """What a client that publishes waits for, where it doesn't flow."""
        return self

    def put_run(self, version: int, chunk: bytes) -> None:
        """Forward a run of whole QoS 0 PUBLISH packets, encoded for MQTT `version` (4 or 5). Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, packet_bytes: int) -> bool:
        """There is room for one more QoS ≥ 1 PUBLISH."""
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """Forward one QoS ≥ 1 PUBLISH; `on_accepted` is called once, when the node has it or need not be waited for.

        False: the link's resend buffer is full, nothing was taken, and the publisher hears 0x97.
        """
        raise NotImplementedError(type(self).__name__)

    def put_once(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """The same of a shared delivery that whoever gets it is to take once, by this id."""
        return self.put_acknowledged(version | ORIGIN, origin + packet, on_accepted)

    def put_until_accepted(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """The same of what no publisher waits for, so that the node, unless it is gone, is waited for."""
        return self.put_acknowledged(version, packet, on_accepted)


@mypyc_attr(acyclic=True)
class SlotTarget:
    """A slot, as a target of messages: its owner has the sessions that want them."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@mypyc_attr(acyclic=True)
class SlotSet:
    """The slots of one fan-out. The dispatcher caches its `queues` to them here, valid for its `queues_version`."""

    __slots__ = ("numbers", "queues", "queues_version")

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.queues: list[Sink] = []
        self.queues_version: int = -1


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class SlotDispatcher:
    """Brings messages to the owners of slots, by one lane for each owner. `congested`: how many lanes are, and in how
    many slots a session is. `is_short`: Redis has little memory left, so no message of QoS ≥ 1 is taken that would
    wait there.
    """

    __slots__ = ("congested", "is_short")

    def __init__(self) -> None:
        self.congested: int = 0
        self.is_short: bool = False

    def put_run(self, slots: SlotSet, version: int, chunk: bytes, publisher: bytes) -> None:
        """Bring a run of whole QoS 0 PUBLISH packets to the owners of these slots. Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        """`put_acknowledged` would take it now, and it may be put. Not `can_be_refused`: its client can't be told, so
        while Redis is short of memory owners drop it for sessions whose clients are away.
        """
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        """Bring one QoS ≥ 1 PUBLISH to them; how many times `on_accepted` will be called: once, when all of them have
        committed it. -1: some lane has no room, nothing was taken, and the publisher hears 0x97. While Redis is short
        of memory `takes` is asked before.
        """
        raise NotImplementedError(type(self).__name__)

    def slow_lanes(self, slots: SlotSet, publisher: bytes) -> list[Sink]:
        """The lanes and slots for which this client should pause. Its own slot is none of them: what is waited for
        there may be its own acknowledgement.
        """
        raise NotImplementedError(type(self).__name__)

    def way_to(self, slot: int, publisher: bytes) -> Sink:
        """What this client's messages for a slot wait for now: the slot, if a session there has enough, or its lane."""
        raise NotImplementedError(type(self).__name__)

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        """As `put_run`, of a shared delivery for one slot."""
        raise NotImplementedError(type(self).__name__)

    def takes_shared(self, slot: int, chunk_bytes: int) -> bool:
        """`put_shared` would take so much now."""
        raise NotImplementedError(type(self).__name__)

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        """Bring one shared delivery of QoS ≥ 1 to one slot, once if it has an id; `on_accepted` is called once, when it
        is committed there. False: its lane has no room, nothing was taken.
        """
        raise NotImplementedError(type(self).__name__)
