"""Connects per second: `inflight` connections at a time go from TCP connect through CONNECT to CONNACK, send DISCONNECT
and are replaced.

It waits for the oldest one first. That costs one system call, and the broker can answer the others meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from flockmq.bench import broker_usage, link
from flockmq.bench.link import BenchLink
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget


def measure(plan: Plan, target: BenchTarget, inflight: int, pids: list[int], ready: Callable[[], None]) -> Sample:
    """Uses the plan's times and prefix."""
    clock, begun, done = time.perf_counter, 0, 0
    under_way: deque[BenchLink] = deque()
    ready()
    try:
        measured_from, end, family = clock() + plan.warmup_s, 0.0, broker_usage.family(pids)
        before, client_s, broker_s, start = 0, 0.0, 0.0, 0.0
        while not end or clock() < end:
            if not end and clock() >= measured_from:
                before, client_s, broker_s, start = done, time.process_time(), broker_usage.cpu_s(family), clock()
                end = start + plan.duration_s
            while len(under_way) < inflight:
                under_way.append(link.begin(target, f"{plan.prefix}-{begun}"))
                begun += 1
            oldest = under_way.popleft()
            link.finish(oldest)
            oldest.close()
            done += 1
        elapsed, connects = clock() - start, done - before
        client_s, broker_s = time.process_time() - client_s, broker_usage.cpu_s(family) - broker_s
    finally:
        for each in under_way:
            each.abort()
    sample: Sample = {"rate": connects / elapsed, "connects": connects, "client_busy": client_s / elapsed}
    if pids:
        sample |= {"broker_busy": broker_s / elapsed, "resident_bytes": broker_usage.resident_bytes(family)}
    return sample
