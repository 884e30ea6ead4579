"""Idle connections: each has one subscription with its own wildcard filter, and no traffic.

The cost of a connection is the growth of the broker's resident memory, divided by the number of connections.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from flockmq.bench import broker_usage
from flockmq.bench.link import ask, begin, finish, granted
from flockmq.bench.plan import Sample
from flockmq.bench.target import BenchTarget

AT_ONCE: Final = 64
QUIET_S: Final = 0.5
"""After the last SUBACK: memory that the broker allocates a moment later belongs to the connections too."""


def measure(
    target: BenchTarget, connections: int, qos: int, prefix: str, limit_s: float, hold_s: float, pids: list[int]
) -> Sample:
    """Open `connections` connections, or as many as `limit_s` allows."""
    family = broker_usage.family(pids)
    before = broker_usage.resident_bytes(family)
    with contextlib.ExitStack() as stack:
        start, opened = time.perf_counter(), 0
        while opened < connections and time.perf_counter() - start < limit_s:
            last = min(opened + AT_ONCE, connections)
            links = [begin(target, f"{prefix}-device-{number:08}") for number in range(opened, last)]
            for link in links:
                stack.callback(link.close)
                finish(link)
            for number, link in enumerate(links, opened):
                ask(link, [f"{prefix}/devices/{number:08}/commands/+"], qos)
            for number, link in enumerate(links, opened):
                granted(link, [f"{prefix}/devices/{number:08}/commands/+"], qos)
            opened = last
        elapsed = time.perf_counter() - start
        time.sleep(QUIET_S)
        grown = broker_usage.resident_bytes(broker_usage.family(pids)) - before
        time.sleep(hold_s)
    sample: Sample = {"connections": opened, "rate": opened / elapsed}
    if pids:
        sample["kib"] = grown / opened / 1024
    return sample
