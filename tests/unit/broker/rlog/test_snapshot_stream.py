"""A bootstrap that is taken while entries are applied ends in the same tables as the log alone."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog import snapshot_stream
from flockmq.rlog.change import gather
from flockmq.rlog.entry import (
    BATCH_FIELD,
    SEAL_FIELD,
    Op,
    StreamId,
    encode_batch,
    encode_purge,
    encode_registration,
    encode_transaction,
)
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.reading import NotNext, apply_entry
from flockmq.rlog.retained_order import author_of
from flockmq.rlog.schema import (
    CLUSTER,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    SLOTS,
    NodeInfo,
    RetainedMessage,
)
from flockmq.rlog.snapshot_stream import Framer, Header, LogEntry, Slice, SnapshotReceiver, Trailer
from flockmq.rlog.tables import Shard, Tables

NODE_NAMES = ["a@1", "b@1", "c@1"]
nodes = st.sampled_from(NODE_NAMES)
filters = st.integers(0, 30).map(lambda n: b"f/%d" % n)
route_ops: dict[str, st.SearchStrategy[Op]] = {
    ROUTE: st.one_of(
        st.builds(lambda f, n: ROUTES.put((f, n), None), filters, nodes),
        st.builds(lambda f, n: ROUTES.delete((f, n)), filters, nodes),
    ),
    CLUSTER: st.one_of(
        st.builds(SLOTS.put, st.integers(0, 8), nodes),
        st.builds(SLOTS.delete, st.integers(0, 8)),
        st.builds(lambda n, port: NODES.put(n, NodeInfo(n, "core", "h", port, 0, "1")), nodes, st.integers(0, 2)),
    ),
}
WRITE, PURGE, SEAL, SLICE, SWEEP = "write", "purge", "seal", "slice", "sweep"


def actions(shard: str) -> st.SearchStrategy[list[tuple[str, object]]]:
    writes = st.tuples(st.just(WRITE), st.lists(route_ops[shard], min_size=1, max_size=6))
    others = st.sampled_from([(SEAL, None), (SWEEP, None), (SLICE, None), (SLICE, None), (SLICE, None)])
    return st.lists(st.one_of(writes, writes, st.tuples(st.just(PURGE), nodes), others), max_size=60)


def entry(shard: Shard, action: str, argument: object) -> LogEntry:
    """The next entry of the log behind what the shard has applied."""
    applied = shard.applied
    following = StreamId(applied.generation, applied.sequence + 1)
    if action == SEAL:
        return LogEntry(StreamId(applied.generation + 1, 0), SEAL_FIELD, str(applied).encode())
    if action == PURGE:
        assert isinstance(argument, str)
        return LogEntry(following, BATCH_FIELD, encode_batch([encode_purge(argument), encode_registration(argument)]))
    assert isinstance(argument, list)
    return LogEntry(following, BATCH_FIELD, encode_batch([encode_transaction("w@1", 1, gather(argument).runs)]))


def rows(shard: Shard) -> dict[str, set[tuple[object, object]]]:
    return {table.spec.name: set(table.items()) for table in shard.tables.values()}


async def interleave(shard: str, script: list[tuple[str, object]]) -> None:
    tables, log = Tables(), []
    source = tables.shards[shard]
    fresh = Tables().shards[shard]
    receiver, sending, received = SnapshotReceiver(fresh), Framer(), Framer()
    stream = snapshot_stream.messages(tables, shard)

    def take(message: snapshot_stream.Message) -> None:
        receiver.take(received.message(sending.frame(message)), apply_entry)

    for action, argument in script:
        if action == SLICE:
            if (message := await anext(stream, None)) is not None:
                take(message)
        elif action == SWEEP:
            source.sweep()
            fresh.sweep()
        else:
            log.append(entry(source, action, argument))
            apply_entry(source, log[-1])
    async for message in stream:
        take(message)
    assert receiver.trailer is not None
    start = fresh.applied
    for missed in log:
        if start < missed.stream_id <= receiver.trailer.end:
            apply_entry(fresh, missed)
    receiver.check()
    for missed in log:
        if missed.stream_id > fresh.applied:
            apply_entry(fresh, missed)
    alone = Tables().shards[shard]
    for missed in log:
        apply_entry(alone, missed)
    for one in (source, fresh, alone):
        while one.sweep():
            pass
    assert rows(fresh) == rows(source) == rows(alone)
    assert fresh.digests() == source.digests() == alone.digests()
    assert fresh.sequences == source.sequences == alone.sequences


@pytest.mark.parametrize("shard", [ROUTE, CLUSTER])
@given(data=st.data())
def test_any_interleaving_converges(shard: str, data: st.DataObject) -> None:
    script = data.draw(actions(shard))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flockmq.bounds.LOG_SLICE_MAX_BYTES", data.draw(st.sampled_from([1, 20, 10_000])))
        asyncio.run(interleave(shard, script))


def filled() -> Tables:
    tables = Tables()
    route = tables.shards[ROUTE]
    ops = [ROUTES.put((b"f/%d" % n, "a@1"), None) for n in range(100)]
    apply_entry(
        route, LogEntry(StreamId(0, 1), BATCH_FIELD, encode_batch([encode_transaction("a@1", 1, gather(ops).runs)]))
    )
    return tables


async def frames() -> list[bytes]:
    return [frame async for frame in snapshot_stream.frames(filled(), ROUTE)]


async def receive(received: list[bytes]) -> SnapshotReceiver:
    receiver, framer = SnapshotReceiver(Tables().shards[ROUTE]), Framer()
    for frame in received:
        receiver.take(framer.message(frame), apply_entry)
    return receiver


async def test_a_stream_of_frames_gives_the_tables() -> None:
    receiver = await receive(await frames())
    receiver.check()
    assert len(receiver.shard.tables[ROUTES.number]) == 100


@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    sent = asyncio.run(frames())
    frame = data.draw(st.integers(0, len(sent) - 1))
    bit = data.draw(st.integers(0, 8 * len(sent[frame]) - 1))
    flipped = bytearray(sent[frame])
    flipped[bit // 8] ^= 1 << bit % 8
    sent[frame] = bytes(flipped)
    with pytest.raises(LogCorrupt, match=f"frame {frame + 1} .* checksum"):
        asyncio.run(receive(sent))


@pytest.mark.parametrize("order", [[1, 2], [0, 2], [0, 1, 1, 2], [0, 0, 1, 2], [1, 0, 2]])
async def test_a_lost_repeated_or_swapped_frame_is_found(order: list[int]) -> None:
    sent = await frames()
    assert len(sent) == 3
    with pytest.raises(LogCorrupt, match="checksum"):
        await receive([sent[n] for n in order])


async def test_a_stream_without_its_end_is_not_taken() -> None:
    with pytest.raises(LogCorrupt, match="without its trailer"):
        (await receive((await frames())[:-1])).check()


async def test_tables_that_are_replaced_while_they_are_sent_end_the_stream() -> None:
    tables = filled()
    stream = snapshot_stream.messages(tables, ROUTE)
    assert isinstance(await anext(stream), Header)
    assert isinstance(await anext(stream), Slice)
    tables.swap(tables.shards[ROUTE].fresh())
    with pytest.raises(StorageUnavailable, match="replaced"):
        await anext(stream)


async def test_rows_that_replayed_entries_would_bring_back_end_the_stream() -> None:
    """A late message has no effect on a row that is dropped then. Replayed without that row, it has."""
    tables = Tables()
    shard = tables.shards[RETAINED]
    newer, late = (
        RetainedMessage(b"", 0, b"", 5, author=author_of(b"client", token, is_will=False)) for token in (2, 1)
    )
    apply_entry(shard, entry(shard, WRITE, [MESSAGES.put(b"t", newer)]))
    stream = snapshot_stream.messages(tables, RETAINED)
    assert isinstance(await anext(stream), Header)
    apply_entry(shard, entry(shard, WRITE, [MESSAGES.put(b"t", late)]))
    drop = tables.messages.drop(b"t")
    assert drop is not None
    apply_entry(shard, entry(shard, WRITE, [drop]))
    with pytest.raises(StorageUnavailable):
        [message async for message in stream]


def test_tables_that_differ_from_the_senders_are_not_taken() -> None:
    receiver = SnapshotReceiver(Tables().shards[ROUTE])
    receiver.take(Header(ROUTE, StreamId(1, 5), {}), apply_entry)
    receiver.take(Trailer(StreamId(1, 5), {"routes": 7}), apply_entry)
    with pytest.raises(LogCorrupt, match="shard route at 1-5 has digests"):
        receiver.check()


@pytest.mark.parametrize(
    ("stream_id", "field", "value"),
    [((0, 3), b"b", b""), ((1, 0), b"b", b""), ((0, 1), b"b", b""), ((1, 0), b"s", b"0-0"), ((1, 0), b"s", b"0-2")],
)
def test_an_entry_that_does_not_follow_is_not_applied(stream_id: tuple[int, int], field: bytes, value: bytes) -> None:
    shard = filled().shards[ROUTE]
    with pytest.raises(NotNext):
        apply_entry(shard, LogEntry(StreamId(*stream_id), field, value))
    assert shard.applied == (0, 1)
