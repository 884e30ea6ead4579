"""A bug that is put into nodes on purpose, and how it is declared: one function of the broker does something wrong.

    @seeded(judge.LOST, "base", NodeForwarding._deliver)
    def drop(right, forwarding, incarnation, version, chunk):
        \"""What it does wrong, for the table.\"""

`wrong` gets what it stands in for, and then what that is called with. What always holds: a bug is in every node of the
process in which it was installed, and in none before; it asks no chance.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

EVERY: Final = 20
"""One of so many, where some go wrong."""

Function = Callable[..., Any]
Wrong = TypeVar("Wrong", bound=Function)


class Bug(NamedTuple):
    """`finding`: the kind that a judge must give in some run of `profile`; `kinds` of faults, where the profile's are
    too many for it to show soon; `seed`: that found it last, which a hunt plays first."""

    install: Callable[[], None]
    finding: str
    profile: str
    kinds: tuple[str, ...]
    seed: int
    what: str


BUGS: Final[dict[str, Bug]] = {}
"""All that were declared, by name."""


def seeded(
    finding: str, profile: str, right: Function, *, kinds: tuple[str, ...] = (), seed: int = 1
) -> Callable[[Wrong], Wrong]:
    """Its name is that of the function that does wrong, with hyphens."""

    def declare(wrong: Wrong) -> Wrong:
        what = " ".join((wrong.__doc__ or "").split())
        BUGS[wrong.__name__.replace("_", "-")] = Bug(
            functools.partial(_put, right, wrong), finding, profile, kinds, seed, what
        )
        return wrong

    return declare


def _put(right: Function, wrong: Function) -> None:
    @functools.wraps(right)
    def broken(*given: Any, **named: Any) -> Any:
        return wrong(right, *given, **named)

    for owner, name in list(_places(right)):
        setattr(owner, name, broken)


def _places(right: Function) -> Iterator[tuple[object, str]]:
    """A method's class; all modules of the broker that have a function."""
    owner_name, _, name = right.__qualname__.rpartition(".")
    if owner_name:
        yield getattr(sys.modules[right.__module__], owner_name), name
        return
    for module_name, module in sys.modules.items():
        if module_name.startswith("flockmq."):
            for attribute, value in vars(module).items():
                if value is right:
                    yield module, attribute
