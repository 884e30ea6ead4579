"""Which generation of a shard's log comes next, decided without I/O.

A generation is one unbroken life of Redis, known by its `run_id`. When a core meets another life than the one stored
beside the log, or a log that ends before what is known, nothing is appended until the next generation is there: sealed
on top of the log if Redis still holds all that is known, or else seeded from the tables that know most.
`known` is the highest Stream ID among the reports at hand; how many cores must have reported is the caller's rule.
"""

from __future__ import annotations

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


class GoOn(NamedTuple):
    life: Life


class Seal(NamedTuple):
    """Redis holds the log up to `known`: the new life goes on from where the log ends."""

    life: Life
    known: StreamId


class Seed(NamedTuple):
    """Redis lost what is known: a new log that builds on `known`."""

    life: Life
    known: StreamId


def plan(stored: Life | None, run_id: str, last: StreamId, known: StreamId) -> GoOn | Seal | Seed:
    """What to do on a Redis that runs as `run_id`, whose log of life `stored` ends at `last`."""
    if stored is not None and stored.run_id == run_id and last >= known:
        return GoOn(stored)
    generation = 1 + max(stored.generation if stored else 0, last.generation, known.generation)
    if last >= known and (stored is not None or known == START):
        return Seal(Life(generation, run_id), known)
    return Seed(Life(generation, run_id), known)
