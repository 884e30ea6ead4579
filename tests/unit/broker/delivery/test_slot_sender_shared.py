"""Messages for one member of a shared subscription, on their way to its slot."""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.message_id import origin_of, session_source
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.sink import CONGESTED, FLOWING
from flockmq.routing.slots import SlotPeers, addressed, slot_of
from unit.broker.delivery.sender import Sender, expiring, left_s, packets


def test_a_shared_delivery_goes_to_the_one_slot_wherever_it_moves(sender: Sender) -> None:
    slot_sender = sender.slot_sender
    assert slot_sender.put_shared(3, 4 | SHARED, b"dealt", sender.told(1))
    sender.put(2, 1)
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(1, 7, packets(2))]
    sender.log_says(8, sender.owners | {3: "b@1"})
    ((_, epoch, (message,)),) = sender.wires["b@1"].batches
    assert (epoch, message.source, message.number, message.version, message.packet) == (
        8, slot_sender.source, 1, 4 | SHARED, b"dealt",
    )  # fmt: skip
    assert sender.accepted == []
    slot_sender.accepted("b@1", 1, 8, {})
    assert sender.accepted == [1]
    assert slot_sender.way_to(3, b"") is slot_sender.way_to(2, b"")


def test_a_shared_delivery_that_has_an_id_goes_under_that(sender: Sender) -> None:
    origin = origin_of(session_source(b"12345678"), 5)
    for _ in range(2):
        assert SlotPeers(sender.slot_sender).peer(1).put_once(4 | SHARED, origin, b"dealt", sender.told(1))
    sender.end_turn()
    messages = [message for _, _, batch in sender.wires["a@1"].batches for message in batch]
    assert [(message.source + message.number.to_bytes(8, "big"), message.version) for message in messages] == [
        (origin, 4 | SHARED),
        (origin, 4 | SHARED),
    ]
    assert [addressed(message.packet) for message in messages] == [(1, b"dealt")] * 2


def test_the_expiry_of_a_shared_delivery_runs_while_it_waits(sender: Sender) -> None:
    item = wrap(b"$share/g/t", 1, 0, expiring(60).packet)
    assert sender.slot_sender.put_shared(3, 5 | SHARED, b"\0\3" + item, sender.told(1))
    sender.now_s += 20.5
    sender.log_says(8, sender.owners | {3: "b@1"})
    ((_, _, (message,)),) = sender.wires["b@1"].batches
    for waited_s in (0, 15):
        slot, chunk = addressed(message.aged(waited_s).packet)
        (sent,) = unwrap(chunk)
        assert (slot, sent.filter, left_s(sent.run)) == (3, b"$share/g/t", 40 - waited_s)


def test_a_shared_delivery_finds_no_room_in_a_full_queue(sender: Sender) -> None:
    chunk = bytes(bounds.SLOT_QUEUE_MAX_BYTES * 3 // 5)
    assert sender.slot_sender.put_shared(0, 4 | SHARED, chunk, sender.told(1))
    peers = SlotPeers(sender.slot_sender)
    assert peers.peer(1).takes(60)
    assert not peers.peer(1).takes(len(chunk))
    assert not sender.slot_sender.put_shared(1, 4 | SHARED, chunk, sender.told(2))
    assert sender.slot_sender.put_shared(2, 4 | SHARED, bytes(60), sender.told(3))


def test_a_shared_run_goes_to_the_one_slot_or_is_dropped(sender: Sender) -> None:
    sender.slot_sender.put_shared_run(2, 4 | SHARED, b"run")
    sender.slot_sender.put_shared_run(3, 4 | SHARED, b"lost")
    sender.end_turn()
    assert sender.wires["b@1"].take() == [(0, 7, [b"run"])]
    assert sender.slot_sender.dropped_bytes == 4


def test_what_a_shared_delivery_waits_for_is_its_slot_if_that_is_congested_and_not_the_publishers_own(
    sender: Sender,
) -> None:
    own = next(b"%d" % number for number in range(99_999) if slot_of(b"%d" % number) == 2)
    queue = sender.slot_sender.way_to(2, b"p")
    sender.slot_sender.back_pressure.congest(2, True)
    slot = sender.slot_sender.way_to(2, b"p")
    assert slot is not queue
    assert (queue.flow, slot.flow) == (FLOWING, CONGESTED)
    assert sender.slot_sender.way_to(2, own) is queue
    sender.slot_sender.back_pressure.congest(2, False)
    assert sender.slot_sender.way_to(2, b"p") is queue
