"""What is measured: the table of shapes. Each is a run of the load client (`../load`) and gives one or more metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """One figure of a shape: the key of the client's JSON, what a reader sees, and which way is better."""

    key: str
    title: str
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Shape:
    """One run of the client. `idle`: measured once, on a broker started for it alone."""

    key: str
    arguments: tuple[str, ...]
    metrics: tuple[Metric, ...]
    idle: bool = False


def _throughput(key: str, title: str, *options: str) -> Shape:
    return Shape(key, ("throughput", *options), (Metric("rate", title, "msg/s"),))


def _round_trip(qos: int) -> Shape:
    percentiles = (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9"))
    metrics = tuple(Metric(key, f"round trip QoS {qos}, {name}", "µs", False) for key, name in percentiles)
    return Shape(f"rtt-{qos}", ("rtt", "--qos", str(qos)), metrics)


MIXED: Final = ("--topics", "64")
HANDSHAKES: Final = ("--window", "100")
HUNDRED_PAIRS: Final = ("--publishers", "100", "--subscribers", "100", "--burst", "1", "--window", "1000")

SHAPES: Final = (
    _throughput("mix-0", "1→1, 64 topics, wildcard subscriber", *MIXED),
    _throughput("pairs-0", "1→1, one topic"),
    _throughput("fan-0", "1→50", "--fan", "--subscribers", "50"),
    _throughput("single-0", "100→100, one message a write", *HUNDRED_PAIRS),
    _throughput("mix-1", "QoS 1 window 100, 64 topics, wildcard subscriber", "--qos", "1", *HANDSHAKES, *MIXED),
    _throughput("pairs-1", "QoS 1 window 100, one topic", "--qos", "1", *HANDSHAKES),
    _throughput("mix-2", "QoS 2 window 100, 64 topics, wildcard subscriber", "--qos", "2", *HANDSHAKES, *MIXED),
    _round_trip(0),
    _round_trip(1),
    Shape("connects", ("connects",), (Metric("rate", "connects", "1/s"),)),
    Shape(
        "idle",
        ("idle",),
        (Metric("kib", "idle connection with one subscription", "KiB", False),),
        idle=True,
    ),
)
"""Payloads are 64 B. At QoS 0 a publisher has up to 16,384 messages under way: a flood, but a bounded one."""
