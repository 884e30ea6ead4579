"""Durable sessions: messages of QoS 1 that are durable before they are acknowledged, beside what Redis does.

Nodes have the broker's core, Redis and the load the other. In each round Redis is measured by itself, while the nodes
are idle, and then the nodes with the same Redis: pairs of XADD and XDEL, which is the least that a message which is
kept and then taken costs there. More nodes than one share their core, so what more of them can do together is told by
what the busiest of the cluster's cores spends on a message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from flockbench import nodes, valkey
from flockbench.brokers import Installed, Running, Site, started
from flockbench.errors import Failed
from flockbench.load import Load, Sample
from flockbench.log import medians, on_core
from flockbench.shapes import Metric, Shape
from flockmq.bench import broker_usage

ROUNDS: Final = 5
CLIENTS: Final = "8"
WINDOW: Final = "250"
MESSAGE_BYTES: Final = 100
"""Topic, payload, and what is kept with them."""
CORES: Final = (0, 1, 2, 3)
"""Of the cluster, which has two replicants besides; 0: a single node."""
PAIRS: Final = Metric("pairs_0", "XADD and XDEL of 100 B, pairs, pipelined", "1/s")


def _metrics(cores: int) -> tuple[Metric, ...]:
    title = "8→8, QoS 1, durable sessions, " + ("a single node", "1 core", "2 cores", "3 cores")[cores]
    return (
        Metric(f"rate_{cores}", title, "msg/s"),
        Metric(f"ratio_{cores}", f"{title}, beside such pairs", "×"),
        Metric(f"busiest_{cores}_us", f"{title}: CPU of the busiest core a message", "µs", False),
    )


EACH_WAY: Final = ("--publishers", CLIENTS, "--subscribers", CLIENTS)
LASTING: Final = Shape(
    "lasting",
    ("throughput", "--qos", "1", "--lasting", "--topics", "64", "--window", WINDOW, *EACH_WAY),
    (PAIRS, *(metric for cores in CORES for metric in _metrics(cores))),
    quick=True,
)


def measure(
    load: Load, environment: dict[str, str], core: int, site: Callable[[], Site], quick: bool
) -> Iterator[Sample]:
    """Each size's figures as soon as they are there. Raises Failed or Missing for the size that couldn't be taken."""
    for cores in CORES[:2] if quick else CORES:
        yield medians(list(_rounds(cores, 1 if quick else ROUNDS, load, environment, core, site())))


def _rounds(
    cores: int, rounds: int, load: Load, environment: dict[str, str], core: int, site: Site
) -> Iterator[Sample]:
    shape = dataclasses.replace(LASTING, way="cluster") if cores else LASTING
    with valkey.running(load.core) as redis:
        if cores:
            launch = nodes.together(environment, redis.url, cores, 2)
        else:
            launch = nodes.one("single", environment | {"FLOCKMQ_REDIS__URL": redis.url})
        with started(launch, site, core, (site.mqtt, site.mqtt + 1) if cores else (site.mqtt,)) as running:
            for _ in range(rounds):
                with on_core(core):
                    pairs = redis.pairs_rate(load.seconds, MESSAGE_BYTES)
                before = _spent(running)
                sample = load.measure(shape, Installed("", launch), running)
                if sample["lost"] or sample["repeated"]:
                    raise Failed(f"{sample['lost']:,.0f} messages lost, {sample['repeated']:,.0f} repeated")
                spent = {name: seconds - before[name] for name, seconds in _spent(running).items()}
                busiest = max(seconds for name, seconds in spent.items() if not name.startswith("replicant-"))
                yield {
                    f"pairs_{cores}": pairs,
                    f"rate_{cores}": sample["rate"],
                    f"ratio_{cores}": sample["rate"] / pairs,
                    f"busiest_{cores}_us": sample["cpu_us"] * busiest / sum(spent.values()),
                }


def _spent(running: Running) -> dict[str, float]:
    """Processor time of each node."""
    return {name: broker_usage.cpu_s([pid]) for name, pid in (nodes.pids(running) or {"single": running.pid}).items()}
