"""Which generation of a shard's log comes next, decided without I/O.

A generation is one unbroken life of Redis, known by its `run_id`. When a core meets another life than the one stored
beside the log, or a log that ends before what it knows, or none, nothing is appended until the next generation is
there. It builds on the highest place that a majority of the configured cores reports, the base: sealed on top of the
log if Redis still holds the log up to there, or else seeded from the tables of a core that stands exactly there. So a
core that knows less, on a blank disk for example, may put a seal on what Redis holds, but never seed over another.

A report is also a promise. A core that reports for generation g remembers g on its disk before it answers, grants g
to one asker only, and from then on applies entries only of a log that has reached g (Replica.bar). From this follows:

- No two logs share a generation, and each has a higher one than any before it: whoever writes a seal was granted its
  generation by a majority, any two majorities share a core, and that core grants only growing numbers. So "further" is
  always "more recent", also when Redis is lost twice while some cores are cut off.
- What a majority of the cores has applied is in every later generation: each majority that reports has a core among
  it that had applied it, and a core that reported applies nothing further of what may be left behind.
- Appends are acknowledged when the writer's own tables have them, which may be before a majority does. Their writer
  keeps them until then (writer.py), and writes them again under their numbers if the next generation lacks them.

So what was acknowledged is lost only when Redis loses it and, before a heartbeat told of a majority, its writer dies
too; or when Redis loses it together with the tables of a majority of the cores. Two cores that settle at once are told
apart by Redis: it replaces only the life that the settling core saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt


class Life(NamedTuple):
    """The life that a log is written in, as it is stored beside the log."""

    generation: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.generation}:{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for the empty string: this Redis holds no log. Raises LogCorrupt."""
        if not text:
            return None
        generation, colon, run_id = text.partition(":")
        if not (generation.isdigit() and colon and run_id):
            raise LogCorrupt(f"life of the log is {text!r}; expected generation:run_id")
        return cls(int(generation), run_id)


class Report(NamedTuple):
    """What one core says of a shard. `core` is its name, without the incarnation."""

    core: str
    place: StreamId
    """Where its tables are."""
    promised: int
    """The highest generation that it promised to anybody."""
    granted: bool = False
    """It promised this one to whoever asked now."""


class Found(NamedTuple):
    """What a Redis holds of a shard."""

    run_id: str
    life: Life | None
    last: StreamId
    """The last entry of its log."""


class Seal(NamedTuple):
    """Redis holds the log up to `base`: the new life goes on from where the log ends."""

    life: Life
    base: StreamId


class Seed(NamedTuple):
    """Redis lost the log up to `base`: a new one that builds on it."""

    life: Life
    base: StreamId


def is_settled(found: Found, mine: Report) -> bool:
    """Appends may go on: this is the life that was agreed upon, and nothing this core knows is missing in it."""
    life = found.life
    return (
        life is not None
        and life.run_id == found.run_id
        and life.generation >= mine.promised
        and found.last >= mine.place
    )


def next_generation(found: Found, reports: Iterable[Report]) -> int:
    """One that is higher than all that any of them heard of."""
    known = [found.last.generation, found.life.generation if found.life else 0]
    for report in reports:
        known += report.place.generation, report.promised
    return 1 + max(known)


def plan(found: Found, generation: int, reports: Iterable[Report]) -> Seal | Seed:
    """What begins the generation; `reports` are those of a majority of the configured cores."""
    base = max(report.place for report in reports)
    life = Life(generation, found.run_id)
    if found.last >= base and (found.life is not None or base == START):
        return Seal(life, base)
    return Seed(life, base)


def turn(core: str, step: Seal | Seed, reports: Iterable[Report]) -> int | None:
    """How many of those that may take the step come before this core, so that they don't outbid one another; None: it
    may not."""
    able = sorted(report.core for report in reports if isinstance(step, Seal) or report.place == step.base)
    return able.index(core) if core in able else None


def majority(cores: int) -> int:
    """How many of so many are more than half."""
    return cores // 2 + 1


def reached_by_majority(places: Sequence[StreamId], cores: int) -> StreamId:
    """The furthest place that more than half of the configured cores have reached, by the places of those that said.
    Who is in a later generation says nothing of an earlier one: that may have been left behind from its base on."""
    needed = majority(cores)
    for generation in {place.generation for place in places}:
        reached = sorted((place for place in places if place.generation == generation), reverse=True)
        if len(reached) >= needed:
            return reached[needed - 1]
    return START
