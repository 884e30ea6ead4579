"""One number that /metrics shows, and how a node's parts are asked for theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Sample(NamedTuple):
    """One number for /metrics: a name out of the telemetry catalogue, its label values, and the number."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Samples = Callable[[], Iterable[Sample]]
"""What a node, or a part of one, says when it is asked for its numbers."""
