"""One number that /metrics shows."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One number for /metrics: a name out of the telemetry catalogue, its label values, and the number."""

    name: str
    value: float
    labels: tuple[str, ...] = ()
