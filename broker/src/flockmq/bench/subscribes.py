"""Closed loop: one client, one SUBSCRIBE in flight, each for a filter that no other client has.

A sample is the time from the write of SUBSCRIBE to the complete read of its SUBACK. In a cluster this includes the
commit of the route, and the time until the client's own node has it. Nothing is unsubscribed before the end, because
the next SUBSCRIBE would wait for the removal of the route.
"""

from __future__ import annotations

import contextlib
import time

from flockmq.bench.latency import percentiles
from flockmq.bench.link import connect, subscribe
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget


def measure(plan: Plan, target: BenchTarget) -> Sample:
    """Percentiles of SUBSCRIBE to SUBACK in µs. Uses the plan's QoS, times and prefix."""
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
