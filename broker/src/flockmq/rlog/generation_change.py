"""Begins a shard's next generation, on a core: get reports of a majority, then seal or seed in Redis (generation.py).

It takes two rounds. Round 1 collects the positions of the cores and promises nothing. A core that can neither seal nor
seed stops here; the others go on one after the other (`rank`). In round 2 a majority promises the generation, as in
Paxos' prepare; the change in Redis is the accept. Any failure raises StorageUnavailable, and the committer tries again.
If several cores finish round 2, Redis accepts the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import Argument, RedisLink, Reply
from flockmq.rlog import snapshot
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import (
    Life,
    Report,
    Seal,
    Seed,
    StoredLog,
    is_settled,
    majority,
    next_generation,
    plan,
    rank,
    unreadable,
)
from flockmq.rlog.ports import VotePort
from flockmq.rlog.schema import keys_of
from flockmq.rlog.tables import Tables
from flockmq.rlog.voter import Voter

log = logging.getLogger(__name__)


class GenerationChange:
    """`on_lost(shard, text)` is called when this core seeded a log because Redis had lost entries that the cores
    know."""

    def __init__(self, voter: Voter, votes: VotePort, tables: Tables, on_lost: Callable[[str, str], None]) -> None:
        self._voter = voter
        self._votes = votes
        self._tables = tables
        self._on_lost = on_lost
        self._begun: dict[str, None] = {}

    def has_begun(self, shard: str) -> bool:
        """True if this core began the shard's log, when neither Redis nor a majority of the cores had one."""
        return shard in self._begun

    async def settle(self, link: RedisLink, shard: str, run_id: str) -> Life:
        """Return the life in which the shard's log continues in the Redis behind `link`, whose run id is `run_id`.
        Begin a new generation if needed. Raises StorageUnavailable."""
        found, settled = await self._read_redis(link, shard, run_id)
        if settled is not None:
            return settled
        reports = await self._get_reports(shard, 0)
        generation = next_generation(found, reports)
        step = self._plan(link, shard, found, generation, reports)
        before = rank(self._voter.name, step, reports)
        if before is None:
            raise StorageUnavailable(
                f"shard {shard}: Redis at {link.config.address} holds its log up to {found.last}; another core knows "
                f"it up to {step.base} and must seed the next generation"
            )
        if before:
            await asyncio.sleep(before * bounds.BALLOT_TURN_S)
            found, settled = await self._read_redis(link, shard, run_id)
            if settled is not None:
                return settled
        return await self._decide(link, shard, found, generation)

    async def _read_redis(self, link: RedisLink, shard: str, run_id: str) -> tuple[StoredLog, Life | None]:
        """Read what Redis holds. The second value is its life if no new generation is needed."""
        keys = keys_of(shard)
        last = ("XREVRANGE", keys[0], "+", "-", "COUNT", 1)
        stored, newest = await link.pipeline([("GET", keys[1]), last])
        text = stored.decode() if isinstance(stored, bytes) else ""
        found = StoredLog(run_id, Life.parse(text), _newest_id(newest))
        mine = await self._voter.report(shard, 0)
        return found, found.life if is_settled(found, mine) else None

    async def _get_reports(self, shard: str, generation: int) -> list[Report]:
        """Get the reports of a majority, this core's own included. Raises StorageUnavailable."""
        mine = await self._voter.report(shard, generation)
        reports = [mine, *await self._votes.ask(shard, generation)]
        needed = majority(self._votes.cores)
        if len(reports) < needed:
            reported = ", ".join(sorted(report.core for report in reports))
            raise StorageUnavailable(
                f"shard {shard}: waiting for {needed} of {self._votes.cores} cores to say up to where they know the "
                f"log, so that nothing is lost; reported of {reported} so far"
            )
        if generation and sum(report.granted for report in reports) < needed:
            raise StorageUnavailable(f"shard {shard}: another core begins generation {generation} or a later one")
        return reports

    @staticmethod
    def _plan(link: RedisLink, shard: str, found: StoredLog, generation: int, reports: list[Report]) -> Seal | Seed:
        """As `plan`. Raises StorageUnavailable where that would lose what is in a snapshot that can't be read."""
        step = plan(found, generation, reports)
        if cores := unreadable(step, reports):
            file = snapshot.name_of(shard)
            raise StorageUnavailable(
                f"shard {shard}: Redis at {link.config.address} has no log of it, and the snapshot of "
                f"{', '.join(cores)} can't be read, so nobody begins it anew, which would be without what was in it: "
                f"start a core that has it; or put {file} of another core or of a backup into the data folder there, "
                f"or delete it to go on without, and restart"
            )
        return step

    async def _decide(self, link: RedisLink, shard: str, found: StoredLog, generation: int) -> Life:
        reports = await self._get_reports(shard, generation)
        step = self._plan(link, shard, found, generation, reports)
        state = self._tables.shards[shard]
        arguments: list[Argument] = [str(found.life or ""), str(step.life), str(step.base)]
        if isinstance(step, Seed):
            if state.applied != step.base:
                raise StorageUnavailable(f"shard {shard}: another core is at {step.base} by now and must seed it")
            for incarnation, number in state.sequences.items():
                arguments += incarnation, number
        verb = "seal" if isinstance(step, Seal) else "seed"
        keys = keys_of(shard)
        try:
            await link.call("FCALL", f"flockmq_{verb}_1", len(keys), *keys, *arguments)
        except ResponseError as error:
            raise StorageUnavailable(f"shard {shard}: another core changes its generation: {error}") from None
        log.info(
            "shard %s: generation %d %sed from %s, because Redis restarted or lost data",
            shard,
            generation,
            verb,
            step.base,
        )
        await link.replicated()
        if found.life is None and step.base == START:
            self._begun[shard] = None
        if isinstance(step, Seed) and step.base != START:
            self._report_loss(link, shard, found, step)
        return step.life

    def _report_loss(self, link: RedisLink, shard: str, found: StoredLog, step: Seed) -> None:
        text = (
            f"Redis at {link.config.address} lost entries of shard {shard}: its log ended at {found.last}, the cores "
            f"know it up to {step.base}; {self._voter.name} began a new one from its tables"
        )
        log.error("%s", text)
        self._on_lost(shard, text)


def _newest_id(reply: Reply | ResponseError) -> StreamId:
    match reply:
        case [[bytes(stream_id), _]]:
            return StreamId.parse(stream_id)
        case []:
            return START
    raise StorageUnavailable(f"the end of the log can't be read: {reply!r}")
