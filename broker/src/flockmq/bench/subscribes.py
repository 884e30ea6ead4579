"""Closed loop: one client, one SUBSCRIBE in flight, each of a filter that nobody else has.

A sample is the time from the write of SUBSCRIBE to the whole read of its SUBACK: with a cluster behind it, what it
takes until a route is committed and the client's own node has it. Nothing is unsubscribed before the end: a route on
its way out would be what the next SUBSCRIBE waits for.
"""

from __future__ import annotations

import contextlib
import time

from flockmq.bench.latency import percentiles
from flockmq.bench.link import connect, subscribe
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget


def measure(plan: Plan, target: BenchTarget) -> Sample:
    """Percentiles of SUBSCRIBE to SUBACK in µs. Of the plan: QoS, times, prefix."""
    with contextlib.closing(connect(target, f"{plan.prefix}-subscriber")) as link:
        start = time.perf_counter() + plan.warmup_s
        end, samples, number = start + plan.duration_s, list[float](), 0
        while not samples or time.perf_counter() < end:
            name, number = f"{plan.prefix}/{number}/+", number + 1
            asked = time.perf_counter()
            subscribe(link, [name], plan.qos)
            answered = time.perf_counter()
            if asked >= start:
                samples.append(answered - asked)
    return percentiles(samples)
