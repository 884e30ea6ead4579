"""Decides which generation of a shard's log comes next. No I/O.

A generation of the log is like a term in Raft. It belongs to one life of Redis: a run of the process, known by its
`run_id`, with all its data. A new generation is needed when a core finds that Redis has another `run_id` than the one
stored beside the log, that the log ends before the core's own position, or that there is no log. Nothing is appended
until the new generation has begun.

The new generation builds on its *base*: the highest position that a majority of the configured cores reports. If Redis
still holds the log up to the base, a core *seals* it: it appends a seal entry, and the log continues. Otherwise a core
whose tables are exactly at the base *seeds* a new log, which continues from these tables. So a core that knows less,
for example after its disk was lost, may seal the log in Redis but can never replace a newer one.

A report is also a promise, as a vote in Raft is. A core that reports for generation g first stores g on its disk. It
grants g to one candidate only. From then on it applies entries only from a log that has reached g
(Replica.require_generation). It follows:

- No two logs have the same generation, and each has a higher one than all before it. The reason: a majority granted the
  generation to the core that writes the seal, any two majorities share a core, and that core grants only growing
  numbers. So "further" always means "more recent", even if Redis is lost twice while some cores are cut off.
- Every later generation contains what a majority of the cores has applied. The reason: any majority that reports
  includes a core that had applied it. After its report, that core applies no more of the old generation.
- A writer counts an append as done when its own tables have it, perhaps before a majority has it. It keeps the append
  until a majority has it (writer.py), and writes it again under its number if the next generation lacks it.

A core that can't read its snapshot reports UNREADABLE, which is further than nothing but behind every log: the others'
tables or the log in Redis are the base as always, but where there is neither, nobody begins an empty shard. A core
without a snapshot reports START: it is new, or somebody decided to go on without.

So an acknowledged write is lost only in two cases: Redis loses it and its writer dies before it heard that a majority
has it, or Redis loses it together with the tables of a majority of the cores. If two cores seal or seed at once, Redis
decides: it replaces only the life that the core had read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt

UNREADABLE: Final = StreamId(0, 1)
"""The position of a core that has a snapshot, but can't read it and has no tables yet. No tables are ever there:
generations begin at 1. Earlier releases wait, too, where it is the base: for a core whose tables are there."""


class Life(NamedTuple):
    """The life that the log belongs to, as it is stored beside the log."""

    generation: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.generation}:{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for an empty string: this Redis holds no log. Raises LogCorrupt."""
        if not text:
            return None
        generation, colon, run_id = text.partition(":")
        if not (generation.isdigit() and colon and run_id):
            raise LogCorrupt(f"life of the log is {text!r}; expected generation:run_id")
        return cls(int(generation), run_id)


class Report(NamedTuple):
    """What one core reports of a shard. `core` is its name, without the incarnation."""

    core: str
    position: StreamId
    """The log position of its tables."""
    promised: int
    """The highest generation that it has promised to any core."""
    granted: bool = False
    """It promised the requested generation to this candidate now."""


class StoredLog(NamedTuple):
    """What a Redis server holds of a shard."""

    run_id: str
    life: Life | None
    last: StreamId
    """The last entry of its log."""


class Seal(NamedTuple):
    """Redis holds the log up to `base`: the new generation continues it."""

    life: Life
    base: StreamId


class Seed(NamedTuple):
    """Redis lost the log up to `base`: a new log starts, from the tables at `base`."""

    life: Life
    base: StreamId


def is_settled(found: StoredLog, mine: Report) -> bool:
    """Appends may continue: this is the agreed life, and the log has everything that this core knows."""
    life = found.life
    return (
        life is not None
        and life.run_id == found.run_id
        and life.generation >= mine.promised
        and found.last >= mine.position
    )


def next_generation(found: StoredLog, reports: Iterable[Report]) -> int:
    """A generation above all that Redis or the cores know of."""
    known = [found.last.generation, found.life.generation if found.life else 0]
    for report in reports:
        known += report.position.generation, report.promised
    return 1 + max(known)


def plan(found: StoredLog, generation: int, reports: Iterable[Report]) -> Seal | Seed:
    """Decide how to begin the generation. `reports` come from a majority of the configured cores."""
    base = max(report.position for report in reports)
    life = Life(generation, found.run_id)
    if found.last >= base and (found.life is not None or base == START):
        return Seal(life, base)
    return Seed(life, base)


def unreadable(step: Seal | Seed, reports: Iterable[Report]) -> list[str]:
    """The cores whose snapshots would have to be read first: where all else is empty, the step isn't to be taken."""
    if isinstance(step, Seal) or step.base != UNREADABLE:
        return []
    return sorted(report.core for report in reports if report.position == UNREADABLE)


def rank(core: str, step: Seal | Seed, reports: Iterable[Report]) -> int | None:
    """How many other cores may take the step before this one, so that they don't outbid each other. None: this core may
    not."""
    able = sorted(report.core for report in reports if isinstance(step, Seal) or report.position == step.base)
    return able.index(core) if core in able else None


def majority(cores: int) -> int:
    """The smallest number that is more than half of `cores`."""
    return cores // 2 + 1


def needed_to_keep(cores: int) -> int:
    """How many of the configured cores must have applied something so that every majority has one of them: then every
    later generation has it."""
    return cores - majority(cores) + 1


def has_reached(applied: StreamId, position: StreamId) -> bool:
    """A core whose tables are at `applied` surely has all up to `position`. One in a later generation may lack the end
    of the earlier one."""
    return applied.generation == position.generation and applied >= position


def reached_by_majority(positions: Sequence[StreamId], cores: int) -> StreamId:
    """The furthest position that more than half of the configured cores have reached, by the reported positions. A core
    in a later generation doesn't count for an earlier one: the new generation may lack the end of the old one."""
    needed = majority(cores)
    for generation in {position.generation for position in positions}:
        reached = sorted((position for position in positions if position.generation == generation), reverse=True)
        if len(reached) >= needed:
            return reached[needed - 1]
    return START
