"""What one call to Redis holds, whatever was put, deleted and dropped before it."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from flockmq.bounds import STORE_BATCH_MAX_BYTES, STORE_MESSAGE_MAX_BYTES
from flockmq.default_callbacks import ignore
from flockmq.durable.pending_writes import META, Fields, PendingWrites, ServerQueue, SlotKeys, SlotQueue, WriteBatch

KEYS = SlotKeys(7)
A, B = b"a", b"b"


def put(batch: WriteBatch, client_id: bytes, field: bytes, value: bytes | None) -> None:
    batch.sessions.setdefault(client_id, {})[field] = value


def hashes_of(batch: WriteBatch) -> dict[object, tuple[object, dict[object, object], list[object]]]:
    """Key of each hash in the call -> verb, what is put, what is deleted; as functions.lua reads it."""
    call = batch.call(b"function", KEYS, b"before", b"after")
    assert call[:2] == [b"FCALL", b"function"]
    keys, arguments = call[3 : 3 + int(call[2])], call[3 + int(call[2]) :]
    assert keys[:2] == [b"flockmq:{s7}:fence", b"flockmq:{s7}:ids"]
    assert arguments[:2] == [b"before", b"after"]
    found = {}
    at = 2
    for key in keys[2:]:
        verb, puts, deletes = arguments[at], int(arguments[at + 1]), int(arguments[at + 2])
        flat = arguments[at + 3 : at + 3 + puts]
        at += 3 + puts + deletes
        found[key] = (verb, dict(zip(flat[::2], flat[1::2], strict=True)), list(arguments[at - deletes : at]))
    assert at == len(arguments)
    return found


def test_what_must_become_durable_at_once_is_never_in_two_batches() -> None:
    changes, slot = PendingWrites(), SlotQueue(7, b"fence", ServerQueue(ignore))
    changes._slots[7] = slot
    while len(slot.batches) < 3:
        changes.put(7, A, b"q%d" % len(slot.batches), bytes(STORE_BATCH_MAX_BYTES // 3), b"o", b"")
        for batch in slot.batches:
            assert {field[:1] for field in batch.sessions[A]} == {b"q", b"o"}
    assert changes.queued_bytes == sum(batch.size for batch in slot.batches)


def test_a_messages_copies_and_its_mark_are_in_one_batch_and_no_more_than_that() -> None:
    changes, slot = PendingWrites(), SlotQueue(7, b"fence", ServerQueue(ignore))
    changes._slots[7] = slot
    changes.put(7, A, b"q0", bytes(STORE_BATCH_MAX_BYTES - 1000))
    for number in (1, 2):
        changes.begin_message(7)
        changes.put(7, A, b"q%d" % number, bytes(STORE_BATCH_MAX_BYTES))
        changes.put(7, B, b"q%d" % number, bytes(STORE_BATCH_MAX_BYTES))
        changes.mark(7, b"source", b"%d" % number)
    assert [(dict.fromkeys([*batch.sessions[A], *batch.sessions[B]]), batch.marks) for batch in slot.batches] == [
        ({b"q0": None, b"q1": None}, {b"source": b"1"}),
        ({b"q2": None}, {b"source": b"2"}),
    ]


def test_a_message_of_very_many_copies_goes_in_several_batches() -> None:
    changes, slot = PendingWrites(), SlotQueue(7, b"fence", ServerQueue(ignore))
    changes._slots[7] = slot
    changes.begin_message(7)
    for number in range(2 * STORE_MESSAGE_MAX_BYTES // STORE_BATCH_MAX_BYTES):
        changes.put(7, b"%d" % number, b"q1", bytes(STORE_BATCH_MAX_BYTES))
    assert len(slot.batches) == 2


def test_who_waited_before_a_slot_is_put_anew_waits_until_all_of_it_is_durable() -> None:
    changes, slot = PendingWrites(), SlotQueue(7, b"fence", ServerQueue(ignore))
    changes._slots[7] = slot
    slot.writable = True
    answered: list[str] = []

    def barrier(name: str) -> None:
        changes.barrier(7, lambda _: answered.append(name))

    for number in range(3):
        changes.put(7, A, b"q%d" % number, bytes(STORE_BATCH_MAX_BYTES))
        barrier(f"before {number}")
    changes.begin_anew(7)
    changes.put(7, A, b"q0", bytes(STORE_BATCH_MAX_BYTES))
    barrier("amid it")
    changes.begin_anew(7)  # The first time it failed.
    for number in range(3):
        changes.put(7, A, b"q%d" % number, bytes(STORE_BATCH_MAX_BYTES))
    assert not slot.server.queue, "no part of it is written"
    changes.end_anew(7)
    barrier("behind it")
    assert slot.server.queue == {7: slot}
    assert [len(batch.barriers) for batch in slot.batches] == [0, 0, 5]
    for done in slot.batches[-1].barriers:
        done(True)
    assert answered == ["before 0", "before 1", "before 2", "amid it", "behind it"]
    assert changes.queued_bytes == sum(batch.size for batch in slot.batches)


def test_of_a_slot_that_is_put_anew_and_has_nothing_barriers_are_answered_too() -> None:
    changes, slot = PendingWrites(), SlotQueue(7, b"fence", ServerQueue(ignore))
    changes._slots[7] = slot
    slot.writable = True
    changes.put(7, A, b"q", b"1")
    changes.barrier(7, lambda _: None)
    changes.begin_anew(7)
    changes.end_anew(7)
    assert [len(batch.barriers) for batch in slot.batches] == [1]
    assert slot.server.queue == {7: slot}


def test_the_last_change_of_a_field_counts() -> None:
    batch = WriteBatch()
    put(batch, A, b"q1", b"old")
    put(batch, A, b"q2", b"kept")
    put(batch, A, b"q1", None)
    put(batch, A, b"q3", None)
    put(batch, A, b"q3", b"new")
    assert hashes_of(batch) == {b"flockmq:{s7}:c:a": (b"K", {b"q2": b"kept", b"q3": b"new"}, [b"q1"])}


def test_a_session_with_its_meta_field_is_listed() -> None:
    batch = WriteBatch()
    put(batch, A, META, b"1")
    put(batch, B, b"q", b"2")
    assert {key: verb for key, (verb, _, _) in hashes_of(batch).items()} == {
        b"flockmq:{s7}:c:a": b"B",
        b"flockmq:{s7}:c:b": b"K",
    }


def test_a_dropped_session_takes_its_changes_along_and_another_may_begin() -> None:
    batch = WriteBatch()
    put(batch, A, b"q1", b"gone")
    put(batch, B, b"q1", b"gone")
    batch.drop(A)
    batch.drop(B)
    put(batch, B, META, b"anew")
    assert hashes_of(batch) == {
        b"flockmq:{s7}:c:a": (b"E", {}, []),
        b"flockmq:{s7}:c:b": (b"R", {META: b"anew"}, []),
    }


def test_marks_are_a_hash_of_their_own() -> None:
    batch = WriteBatch()
    batch.marks[b"source"] = b"number"
    batch.marks[b"forgotten"] = None
    assert hashes_of(batch) == {b"flockmq:{s7}:marks": (b"K", {b"source": b"number"}, [b"forgotten"])}


CHANGES = st.tuples(st.sampled_from([A, B]), st.sampled_from([META, b"1", b"2"]), st.none() | st.binary(max_size=2))


@given(st.lists(CHANGES | st.sampled_from([A, B])))
def test_a_batch_comes_to_the_same_as_its_changes_one_by_one(
    changes: list[tuple[bytes, bytes, bytes | None] | bytes],
) -> None:
    """A bare client id in `changes` is a drop."""
    batch = WriteBatch()
    expected: dict[bytes, Fields] = {}
    dropped = set()
    for change in changes:
        if isinstance(change, bytes):
            batch.drop(change)
            expected.pop(change, None)
            dropped.add(change)
        else:
            client_id, field, value = change
            put(batch, client_id, field, value)
            expected.setdefault(client_id, {})[field] = value
    for key, (verb, puts, deletes) in hashes_of(batch).items():
        assert isinstance(key, bytes)
        client_id = key.removeprefix(KEYS.sessions)
        fields = expected.pop(client_id, {})
        assert puts == {field: value for field, value in fields.items() if value is not None}
        assert set(deletes) == {field for field, value in fields.items() if value is None}
        assert (verb in (b"E", b"R")) == (client_id in dropped)
    assert not expected
