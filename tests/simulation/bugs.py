from __future__ import annotations

from collections.abc import Callable

BUGS: dict[str, Callable[[], None]] = {}


def install(bug: str) -> None:
    BUGS[bug]()
