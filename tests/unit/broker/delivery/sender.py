"""A slot sender with links to two cores that keep what is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flockmq.delivery.batch_queue import size_of
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.slot_table import SEND, SlotTable
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Publish, parse_publish, publication
from flockmq.rlog.entry import StreamId
from flockmq.routing.sink import Sink
from flockmq.routing.slots import SlotMessage
from flockmq.routing.targets import SlotSet


class Wire:
    def __init__(self) -> None:
        self.data_bytes = 0
        self.batches: list[tuple[int, int, list[SlotMessage]]] = []

    def send(self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> None:
        assert size_bytes == sum(map(size_of, messages))
        self.batches.append((number, epoch, list(messages)))

    def take(self) -> list[tuple[int, int, list[bytes]]]:
        taken = [(number, epoch, [message.packet for message in messages]) for number, epoch, messages in self.batches]
        self.batches.clear()
        return taken


class Sender:
    """Slots 0 and 1 are a's, slot 2 is b's, slot 3 is nobody's."""

    def __init__(self) -> None:
        self.turn: list[Sink] = []
        self.wires = {"a@1": Wire(), "b@1": Wire()}
        self.drained: list[Sink] = []
        self.accepted: list[int] = []
        self.now_s = 100.0
        self.table = SlotTable()
        self.slot_sender = SlotSender(
            self.turn, "r@1", self.table, self.wires.get, self.drained.append, lambda: None, lambda: self.now_s
        )
        self.table.listen(SEND, self.slot_sender.slots_moved)
        self.owners = {0: "a@1", 1: "a@1", 2: "b@1"}
        self.log_says(7, self.owners)

    def log_says(self, epoch: int, owners: dict[int, str]) -> None:
        """Of all slots."""
        fresh = self.table.fresh()
        for slot, owner in owners.items():
            fresh.put(slot, owner, None)
        self.table.swap(fresh)
        self.table.entry_applied(StreamId(0, epoch))
        self.slot_sender.look()

    def put(self, number: int, *slots: int, size: int = 0, origin: bytes = b"") -> SlotSet:
        wanted = SlotSet(list(slots))
        assert self.slot_sender.put_acknowledged(wanted, message(number, size, origin), self.told(number)) == 1
        return wanted

    def told(self, number: int) -> Callable[[], None]:
        return lambda: self.accepted.append(number)

    def end_turn(self) -> None:
        for sink in self.turn:
            sink.flush()
        self.turn.clear()


def message(number: int, size: int = 0, origin: bytes = b"") -> Publish:
    publish = publication(4, 1, False, b"t", b"%d" % number + bytes(size), b"")
    publish.origin = origin
    return publish


def expiring(expiry_s: int) -> Publish:
    return publication(5, 1, False, b"t", b"", b"\x02" + expiry_s.to_bytes(4, "big"), expiry_s)


def left_s(packet: bytes) -> int:
    _, body = remaining_length(packet, 1, 5)
    return parse_publish(packet, 0, body, len(packet), 5).expiry_s


def packets(*numbers: int) -> list[bytes]:
    return [message(number).packet for number in numbers]
