"""What is measured: the table of shapes. Each is a run of a load (load.py) and gives one or more figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

Way = Literal["mqtt", "mqtts", "ws", "cluster"]
Program = Literal["flockmq bench", "fleet"]
"""What makes the load. `fleet` (fleet.c) is for shapes in which a Python client would be slower than the broker."""


@dataclass(frozen=True)
class Metric:
    """One figure of a shape: its name in the sample, what a reader sees, and which way is better."""

    key: str
    title: str
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Shape:
    """One run of the load.

    `once`: on a broker started for it alone, one round. `quick`: part of a QUICK=1 run. `after`: only for the peers
    that weren't far behind in that shape.
    """

    key: str
    arguments: tuple[str, ...]
    metrics: tuple[Metric, ...]
    way: Way = "mqtt"
    program: Program = "flockmq bench"
    once: bool = False
    quick: bool = False
    after: Shape | None = None
    besides_s: float = 40.0
    """What a run may take besides its measured time: connecting, subscribing, waiting for the last message."""

    def shortened(self) -> Shape:
        """For a QUICK=1 run, which opens fewer idle connections."""
        return replace(self, arguments=tuple(IDLE_QUICK if each == IDLE else each for each in self.arguments))


def _messages(
    key: str, title: str, *options: str, way: Way = "mqtt", once: bool = False, quick: bool = False, cpu: bool = False
) -> Shape:
    """`cpu`: with the broker's processor time for a message as a second row."""
    metrics = _rate_and_cpu(title) if cpu else (Metric("rate", title, "msg/s"),)
    return Shape(key, ("throughput", *options), metrics, way, once=once, quick=quick)


def _one_a_write(key: str, title: str, *options: str, quick: bool = False) -> Shape:
    """100 pairs; each message is a write of its own, as a device does."""
    return Shape(key, ("pairs", *options), _rate_and_cpu(title), program="fleet", quick=quick)


def _rate_and_cpu(title: str) -> tuple[Metric, ...]:
    return Metric("rate", title, "msg/s"), Metric("cpu_us", f"{title}: broker's CPU a message", "µs", False)


def _latency(qos: int) -> Shape:
    percentiles = (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9"))
    metrics = tuple(Metric(key, f"one in flight, QoS {qos}, {name}", "µs", False) for key, name in percentiles)
    return Shape(f"latency-{qos}", ("latency", "--qos", str(qos)), metrics, quick=True)


IDLE: Final = "10000"
IDLE_QUICK: Final = "1500"
WINDOW: Final = ("--window", "1000")
HUNDRED: Final = ("--publishers", "100", "--subscribers", "100", *WINDOW)
MIXED: Final = ("--topics", "64")
MANY_TOPICS: Final = ("--topics", "100000")

FILTERS_10K: Final = _messages(
    "filters-10k", "100,000 topics, 10,000 wildcard filters", *MANY_TOPICS, "--filters", "10000"
)

SHAPES: Final = (
    _messages("one", "1→1", quick=True, cpu=True),
    _messages("mixed", "1→1, 64 topics, wildcard subscriber", *MIXED, quick=True),
    _messages("fan-out", "1→50", "--fan", "--subscribers", "50", quick=True),
    _messages("fan-in", "50→1", "--fan", "--publishers", "50", *WINDOW),
    _messages("hundred", "100→100", *HUNDRED),
    _one_a_write("single", "100→100, one message a write", quick=True),
    _one_a_write("single-paced", "100→100, one message a write, 100 k/s offered", "rate", "100000"),
    _one_a_write("single-qos-1", "100→100, QoS 1, one in flight", "qos", "1", "window", "1"),
    _messages("qos-1", "QoS 1, window 100, 64 topics, wildcard", "--qos", "1", *MIXED, quick=True, cpu=True),
    _messages("qos-2", "QoS 2, window 100, 64 topics, wildcard", "--qos", "2", *MIXED, quick=True),
    _messages("16-b", "1→1, 16 B", "--payload", "16"),
    _messages("256-b", "1→1, 256 B", "--payload", "256"),
    _messages("16-kib", "1→1, 16 KiB", "--payload", "16384", "--window", "128"),
    _messages("many-topics", "100,000 topics, 1 wildcard filter", *MANY_TOPICS),
    FILTERS_10K,
    _messages("tls", "1→1 over TLS", way="mqtts"),
    _messages("websocket", "1→1 over WebSocket", *WINDOW, way="ws"),
    _latency(0),
    _latency(1),
    Shape(
        "connects",
        ("connects",),
        (
            Metric("rate", "connects", "1/s"),
            Metric("cpu_us", "connects: broker's CPU each", "µs", False),
        ),
        program="fleet",
        quick=True,
    ),
    _messages("cluster", "1→1 across two nodes", way="cluster", once=True),
    Shape(
        "idle",
        ("idle", "--connections", IDLE, "--limit", "8"),
        (Metric("kib", "memory of an idle connection with a subscription", "KiB", False),),
        once=True,
        quick=True,
    ),
    Shape(
        "filters-1m",
        ("throughput", *MANY_TOPICS, "--filters", "1000000"),
        (Metric("rate", "100,000 topics, 1,000,000 wildcard filters", "msg/s"),),
        once=True,
        after=FILTERS_10K,
        besides_s=75.0,
    ),
)
"""Payloads are 64 B where the title doesn't say otherwise. At QoS 0 a publisher has up to 8,192 messages under way: a
flood, but a bounded one; 1,000 with many publishers, and over WebSocket, where Mosquitto 2.1 closes the connection of
one that has more.
"""
