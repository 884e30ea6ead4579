"""Defects put into a node on purpose: the checker that doesn't find one of them proves nothing.

Each replaces one function of the broker, in the process that `faults.launch` starts, and breaks one promise.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Final, cast

EVERY: Final = 50
"""One run of forwarded messages in so many."""


def drop() -> None:
    """Messages that another node forwarded are accepted, and some are not delivered."""
    _instead_of_delivering(lambda deliver, run, held: None)


def duplicate() -> None:
    """Some are delivered twice."""

    def twice(deliver: Deliver, run: Run, held: list[Run]) -> None:
        deliver(*run)
        deliver(*run)

    _instead_of_delivering(twice)


def reorder() -> None:
    """Some are delivered behind what comes after them."""
    _instead_of_delivering(lambda deliver, run, held: held.append(run))


def stale_fence() -> None:
    """Redis takes what was meant for another life of it, and cores go on where they should begin a generation."""
    from flockmq.rlog import generation

    _in_redis("if life_of(keys) ~= life then", "if false then")

    def whatever_is_found(found: generation.Found, mine: generation.Report) -> bool:
        return found.life is not None

    _everywhere(generation.is_settled, whatever_is_found)


def late_write() -> None:
    """Redis takes what purged incarnations still write, and the tables what it took: routes of nodes that are gone."""
    _in_redis(
        "local mark = marks[incarnation] or mark_of(keys, incarnation)",
        "local mark = marks[incarnation] or mark_of(keys, incarnation) or { number = first - 1 }",
    )


BUGS: Final[dict[str, Callable[[], None]]] = {
    "drop": drop,
    "duplicate": duplicate,
    "reorder": reorder,
    "stale-fence": stale_fence,
    "late-write": late_write,
}

Run = tuple[object, str, int, bytes]
Deliver = Callable[[object, str, int, bytes], None]


def install(bug: str) -> None:
    """Before the broker's `main`. Raises KeyError for an unknown one."""
    BUGS[bug]()


def _instead_of_delivering(strange: Callable[[Deliver, Run, list[Run]], None]) -> None:
    """`strange(deliver, run, held)` stands in for one delivery in EVERY; what it holds comes half as many later."""
    from flockmq.node.node import Node

    deliver = cast(Deliver, Node._forwarded)
    count, held = itertools.count(1), list[Run]()

    def broken(self: object, incarnation: str, version: int, chunk: bytes) -> None:
        run = (self, incarnation, version, chunk)
        number = next(count)
        if number % EVERY == 0:
            strange(deliver, run, held)
            return
        deliver(*run)
        if number % EVERY == EVERY // 2:
            while held:
                deliver(*held.pop())

    setattr(Node, deliver.__name__, broken)


def _in_redis(right: str, wrong: str) -> None:
    """In the functions of the log that every core loads into Redis."""
    from flockmq.rlog import committer

    assert right in committer.FUNCTIONS, f"the functions have no {right!r} any more"
    _everywhere(committer.FUNCTIONS, committer.FUNCTIONS.replace(right, wrong))


def _everywhere(right: object, wrong: object) -> None:
    """In all modules of the broker that imported it."""
    import flockmq.node.run  # which imports them all

    assert flockmq.node.run
    for name, module in list(sys.modules.items()):
        if name.startswith("flockmq."):
            for attribute, value in list(vars(module).items()):
                if value is right:
                    setattr(module, attribute, wrong)
