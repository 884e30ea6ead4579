"""A snapshot file gives back the tables it was made of, or is refused by name."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from flockmq.rlog import snapshot
from flockmq.rlog.change import gather
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import BATCH_FIELD, StreamId, encode_batch, encode_transaction
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.reading import apply_entry
from flockmq.rlog.schema import ROUTE, ROUTES
from flockmq.rlog.snapshot_stream import Framer, Header, LogEntry, Trailer
from flockmq.rlog.tables import Shard, Tables


def entry(sequence: int) -> LogEntry:
    op = ROUTES.put((b"f/%d" % sequence, "a@1"), None)
    return LogEntry(
        StreamId(0, sequence), BATCH_FIELD, encode_batch([encode_transaction("a@1", sequence, gather([op]).runs)])
    )


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def read(shard: str, after: StreamId, up_to: StreamId) -> AsyncIterator[LogEntry]:
    """The log as Redis holds it."""
    for sequence in range(after.sequence + 1, up_to.sequence + 1):
        yield entry(sequence)


def filled(length: int) -> Tables:
    tables = Tables()
    for sequence in range(1, length + 1):
        apply_entry(tables.shards[ROUTE], entry(sequence))
    return tables


Patch = pytest.MonkeyPatch


async def written(directory: Path, length: int = 100) -> None:
    assert await snapshot.write(Disk(directory), filled(length), ROUTE, read) == (0, length)


async def load(directory: Path) -> Shard:
    fresh = Tables().shards[ROUTE]
    assert await snapshot.load(Disk(directory), fresh, apply_entry) == fresh.applied
    return fresh


async def test_it_gives_the_tables_at_one_place_of_the_log(tmp_path: Path) -> None:
    await written(tmp_path)
    loaded = await load(tmp_path)
    assert loaded.applied == (0, 100)
    assert len(loaded.tables[ROUTES.number]) == 100
    assert loaded.sequences == {"a@1": 100}
    assert names(tmp_path) == ["route.snapshot"]


async def test_it_is_of_one_place_though_entries_are_applied_meanwhile(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_SLICE_MAX_BYTES", 64)
    tables = filled(100)

    async def go_on() -> None:
        for sequence in range(101, 111):
            apply_entry(tables.shards[ROUTE], entry(sequence))
            await asyncio.sleep(0)

    place, _ = await asyncio.gather(snapshot.write(Disk(tmp_path), tables, ROUTE, read), go_on())
    assert place > (0, 100)
    assert (await load(tmp_path)).applied == place


async def test_a_newer_one_takes_its_place(tmp_path: Path) -> None:
    await written(tmp_path, 10)
    await written(tmp_path, 20)
    assert (await load(tmp_path)).applied == (0, 20)


async def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert await snapshot.load(Disk(tmp_path), Tables().shards[ROUTE], apply_entry) is None


def flip(at: float) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        place = int(at * (len(content) - 1))
        return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda content: b"", "not a snapshot of this format", id="empty"),
        pytest.param(flip(0), "not a snapshot of this format", id="another format"),
        pytest.param(flip(0.5), "checksum", id="a flipped bit"),
        pytest.param(flip(1), "checksum", id="a flipped bit at the end"),
        pytest.param(lambda content: content[:-1], "ends within a frame", id="cut"),
        pytest.param(lambda content: content[: len(content) // 2], "ends within a frame", id="cut in half"),
        pytest.param(lambda content: content + b"\x00", "ends within a frame", id="something behind it"),
        pytest.param(lambda content: content + b"\xff\xff\xff\xff", "a frame of 4294967295 bytes", id="a huge frame"),
    ],
)
async def test_a_damaged_one_is_refused_by_name(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    await written(tmp_path)
    path = tmp_path / "route.snapshot"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LogCorrupt, match=f"^{path}: .*{said}"):
        await load(tmp_path)


async def test_a_check_tells_the_position_without_the_tables(tmp_path: Path) -> None:
    await written(tmp_path)
    with (tmp_path / "route.snapshot").open("rb") as file:
        assert snapshot.check(file) == (0, 100)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(flip(0.5), "checksum", id="a flipped bit"),
        pytest.param(lambda content: content[: len(snapshot.MAGIC)], "ends before its trailer", id="no frame"),
        pytest.param(lambda content: content[:-1], "ends within a frame", id="cut"),
        pytest.param(lambda content: content + b"\x00\x00\x00\x00", "goes on behind its trailer", id="one frame more"),
    ],
)
async def test_a_check_finds_what_is_damaged(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    await written(tmp_path)
    path = tmp_path / "route.snapshot"
    path.write_bytes(damage(path.read_bytes()))
    with path.open("rb") as file, pytest.raises(LogCorrupt, match=said):
        snapshot.check(file)


async def test_one_that_lacks_an_entry_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "route.snapshot"
    framer = Framer()
    frames = map(framer.frame, [Header(ROUTE, StreamId(0, 1), {}), entry(3), Trailer(StreamId(0, 3), {})])
    path.write_bytes(snapshot.MAGIC + b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    with pytest.raises(LogCorrupt, match=f"^{path}: the next entry is 0-3"):
        await load(tmp_path)


async def test_one_that_stops_before_its_trailer_is_refused(tmp_path: Path) -> None:
    await written(tmp_path)
    path = tmp_path / "route.snapshot"
    content = path.read_bytes()
    at, ends = len(snapshot.MAGIC), []
    while at < len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "big")
        ends.append(at)
    path.write_bytes(content[: ends[-2]])
    with pytest.raises(LogCorrupt, match="without its trailer"):
        await load(tmp_path)
