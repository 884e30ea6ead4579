"""What the log is held to: routes written, a node bootstrapped, a subscription acknowledged, beside what Redis does.

Nodes have the broker's core; Redis and the load have the other, and so has the replicant that is asked to subscribe:
nothing else goes on there while it works. Redis by itself is measured in turn with the log, on the same server. The ten
more replicants of the last measurement run at the scheduler's idle class: they stand for machines of their own, and
what is left to see is what they cost Redis, the core and the links.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from flockbench import nodes, ours, valkey
from flockbench.alone import pauses, told
from flockbench.brokers import Running, Site, pinned, started
from flockbench.errors import Failed
from flockbench.load import Sample
from flockbench.packages import step
from flockbench.shapes import Metric, Shape
from flockbench.valkey import Valkey
from flockmq.bench import link, subscribes, target
from flockmq.bench.link import BenchLink
from flockmq.bench.plan import Plan
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import SubscribeEntry

ROUTES: Final = 1_000_000
ROUTE: Final = b"fleet/0000000/+/state"
ROUNDS: Final = 5
SECONDS: Final = 1.0
FILTERS_PER_CLIENT: Final = 100_000
FILTERS_PER_PACKET: Final = 500
PACKETS_UNDER_WAY: Final = 8
MORE: Final = 10
"""Replicants besides the one that is measured."""
QUICK_SHARE: Final = 10

LOG: Final = Shape(
    "log",
    (),
    (
        Metric("route_rate", "route operations committed and applied", "1/s"),
        Metric("route_ratio", "route operations beside XADD of one each, pipelined", "×"),
        Metric("bootstrap_s", "a new node is filled with 1,000,000 routes", "s", False),
        Metric("bootstrap_pause_ms", "longest pause of the core's loop meanwhile", "ms", False),
        Metric("bootstrap_turn_ms", "most processor time of a turn of its loop meanwhile", "ms", False),
        Metric("suback_us", "SUBSCRIBE to SUBACK on a replicant, p50", "µs", False),
        Metric("suback_ratio", "SUBSCRIBE to SUBACK beside a round trip of XADD", "×", False),
        Metric("suback_more", "SUBSCRIBE to SUBACK with 10 more replicants, beside without", "×", False),
    ),
    quick=True,
)


def measure(kind: str, cache: Path, cores: tuple[int, int], site: Callable[[], Site], quick: bool) -> Iterator[Sample]:
    """Each part's figures as soon as they are there. Raises Failed or Missing for the part that couldn't be taken."""
    rounds, routes = (1, ROUTES // QUICK_SHARE) if quick else (ROUNDS, ROUTES)
    environment = ours.stage(cache, kind)
    yield medians([_routes(environment, cores, routes) for _ in range(rounds)])
    yield _bootstrap(environment, cores, site, routes)
    yield _subacks(environment, cores, site, rounds)


def medians(samples: Sequence[Sample]) -> Sample:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


# --- routes -----------------------------------------------------------------------------------------------------------


def _routes(environment: dict[str, str], cores: tuple[int, int], count: int) -> Sample:
    node_core, load_core = cores
    with valkey.running(load_core) as redis, TemporaryDirectory(prefix="flockmq-bench-") as folder, on_core(node_core):
        raw = redis.entries_rate(SECONDS, ROUTE)
        program = ours.command(str(Path(__file__).with_name("routes.py")), redis.url, folder, str(count))
        sample: Sample = json.loads(step(list(pinned(node_core, program)), environment))
    return sample | {"route_ratio": sample["route_rate"] / raw}


# --- a new node -------------------------------------------------------------------------------------------------------


def _bootstrap(environment: dict[str, str], cores: tuple[int, int], site: Callable[[], Site], count: int) -> Sample:
    """The core is on one core and the new replicant on the other, with Redis, of which it needs nothing meanwhile."""
    node_core, load_core = cores
    with valkey.running(load_core) as redis, told():
        here, there = site(), site()
        shared = {"FLOCKMQ_REDIS__URL": redis.url, "FLOCKMQ_CLUSTER__KEY": "00" * 32}
        seeds = {"FLOCKMQ_CLUSTER__SEEDS": nodes.link_at(here)}
        with started(nodes.one("core", environment | shared, watched=True), here, node_core) as core:
            subscribers = [
                _subscribe(here, range(first, min(first + FILTERS_PER_CLIENT, count)))
                for first in range(0, count, FILTERS_PER_CLIENT)
            ]
            pauses(core)
            with started(nodes.one("replicant", environment | shared | seeds), there, load_core) as fresh:
                seconds, rows = _bootstrapped(fresh)
                if rows < count:
                    raise Failed(f"the new node was filled with {rows:,.0f} rows, not with {count:,}")
                paused = pauses(core)
            for subscriber in subscribers:
                subscriber.close()
    return {
        "bootstrap_s": seconds,
        "bootstrap_pause_ms": paused["loop_ms"],
        "bootstrap_turn_ms": paused["loop_cpu_ms"],
    }


def _subscribe(site: Site, numbers: range) -> BenchLink:
    """A client with so many wildcard filters; a few packets are under way, so that the log gets them in batches."""
    subscriber = link.connect(target.parse(f"mqtt://127.0.0.1:{site.mqtt}"), f"subscriber-{numbers.start}")
    firsts = range(0, len(numbers), FILTERS_PER_PACKET)
    for index, first in enumerate(firsts):
        filters = [b"fleet/%07d/+/state" % number for number in numbers[first : first + FILTERS_PER_PACKET]]
        subscriber.write(encode.subscribe(frame.V311, 1, [SubscribeEntry(name, 0) for name in filters]))
        if index >= PACKETS_UNDER_WAY:
            subscriber.read_packet()
    for _ in firsts[-PACKETS_UNDER_WAY:]:
        subscriber.read_packet()
    return subscriber


def _bootstrapped(fresh: Running) -> tuple[float, float]:
    """How long the shard of the routes took, and how many rows came, as the node's own metrics say."""
    with urllib.request.urlopen(f"http://127.0.0.1:{fresh.site.others[0]}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("flockmq_rlog_bootstrap_"))
    time_s, rows = (values[f'flockmq_rlog_bootstrap_{name}{{shard="route"}}'] for name in ("time_seconds", "num_keys"))
    return float(time_s), float(rows)


# --- subscriptions ----------------------------------------------------------------------------------------------------


def _subacks(environment: dict[str, str], cores: tuple[int, int], site: Callable[[], Site], rounds: int) -> Sample:
    """Two clusters at the same time, one with ten more replicants than the other, and Redis, in turn."""
    samples: list[Sample] = []
    with (
        told(),
        _cluster(environment, cores, site(), 1) as (few, redis),
        _cluster(environment, cores, site(), 1 + MORE) as (many, _),
    ):
        for _ in range(rounds):
            trip = redis.round_trip_us(SECONDS, len(ROUTE))
            alone, with_more = _suback_us(few), _suback_us(many)
            samples.append(
                {"suback_us": alone, "suback_ratio": alone / trip, "suback_more": with_more / alone, "xadd_us": trip}
            )
    return medians(samples)


def _suback_us(cluster: Running) -> float:
    plan = Plan(qos=1, warmup_s=SECONDS / 4, duration_s=SECONDS)
    return subscribes.measure(plan, target.parse(f"mqtt://127.0.0.1:{cluster.site.mqtt}"))["p50_us"]


@contextlib.contextmanager
def _cluster(
    environment: dict[str, str], cores: tuple[int, int], site: Site, replicants: int
) -> Iterator[tuple[Running, Valkey]]:
    """A core and replicants, the first of them beside the load; the others only have what time is left over."""
    node_core, load_core = cores
    with (
        valkey.running(load_core) as redis,
        started(nodes.together(environment, redis.url, 1, replicants), site, node_core) as running,
    ):
        for name, pid in nodes.pids(running).items():
            if name == "replicant-1":
                os.sched_setaffinity(pid, {load_core})
            elif name.startswith("replicant-"):
                _give_way(pid)
        yield running, redis


def _give_way(pid: int) -> None:
    """Let the process have only the time that is left over. Each node is a session of its own, which the scheduler may
    weigh as a group before it looks at what is in it."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text("19")


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What this process does itself is done on that core meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
