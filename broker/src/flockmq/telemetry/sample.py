"""One value of a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Sample(NamedTuple):
    """One value: the name of a metric in the catalogue, the value, and the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Samples = Callable[[], Iterable[Sample]]
"""Returns the current samples of a node, or of a part of one."""
