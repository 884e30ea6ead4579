"""This core's vote for a new generation of the log: it reports its log position and what it promised (generation.py).

A promise is on disk before it is reported, in one small file beside the snapshots. One write is under way at a time, so
an older one never replaces a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import UNREADABLE, Report
from flockmq.rlog.replica import Replica
from flockmq.rlog.schema import SHARDS

log = logging.getLogger(__name__)

FILE: Final = "promises.json"
_decoder = msgspec.json.Decoder(dict[str, int])


class Voter:
    """`name`: this core's name in reports. `replica`: its tables."""

    def __init__(self, name: str, replica: Replica, disk: Disk) -> None:
        self.name = name
        self.unreadable: set[str] = set()
        """Shards whose snapshots can't be read."""
        self._replica = replica
        self._disk = disk
        self._promised = dict.fromkeys(SHARDS, 0)
        self._promised_at = dict.fromkeys(SHARDS, 0.0)
        self._writing = asyncio.Lock()
        self._loaded = False

    async def load(self) -> None:
        """Load the promises from before a restart. Call it after the tables are loaded."""
        try:
            stored = _decoder.decode(await asyncio.to_thread(_read, self._disk))
        except FileNotFoundError:
            stored = {}
        except (OSError, msgspec.DecodeError) as error:
            path = self._disk.path(FILE)
            log.error("%s is ignored: %s; it holds the generations of the log that this core promised", path, error)
            stored = {}
        for shard in SHARDS:
            self._promise(shard, stored.get(shard, 0))
        self._loaded = True

    def promised(self, shard: str) -> int:
        return self._promised[shard]

    def promised_for_s(self, shard: str) -> float:
        """Seconds since the last promise."""
        return asyncio.get_running_loop().time() - self._promised_at[shard]

    async def report(self, shard: str, generation: int) -> Report:
        """Report the log position of the tables. Promise the generation if it is higher than any before (0: never).
        Raises StorageUnavailable."""
        if shard not in SHARDS or not self._loaded:
            raise StorageUnavailable(f"{self.name} has not loaded shard {shard!r}")
        granted = generation > self._promised[shard]
        if granted:
            self._promise(shard, generation)
            # A caller that gives up doesn't end the write: its thread goes on, and the next one must come behind it.
            await asyncio.shield(asyncio.create_task(self._write()))
        return Report(self.name, self._position(shard), self._promised[shard], granted)

    def _promise(self, shard: str, generation: int) -> None:
        self._promised[shard] = generation
        self._promised_at[shard] = asyncio.get_running_loop().time()
        self._replica.require_generation(shard, generation)

    def _position(self, shard: str) -> StreamId:
        if self._replica.is_distrusted(shard):
            return START
        applied = self._replica.tables.shards[shard].applied
        return UNREADABLE if applied == START and shard in self.unreadable else applied

    async def _write(self) -> None:
        """Write what is promised when its turn comes. Raises StorageUnavailable."""
        async with self._writing:
            data = msgspec.json.encode(self._promised)
            try:
                await asyncio.to_thread(_write_durably, self._disk, data)
            except OSError as error:
                raise StorageUnavailable(f"{self.name} can't write {self._disk.path(FILE)}: {error.strerror}") from None


def _read(disk: Disk) -> bytes:
    with disk.open(FILE) as file:
        return file.read()


def _write_durably(disk: Disk, data: bytes) -> None:
    beside = "promises.writing"
    with disk.create(beside) as file:
        file.write(data)
        disk.sync(file)
    disk.replace(beside, FILE)
