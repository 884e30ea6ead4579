"""Idle connections: each has one subscription with its own wildcard filter, and no traffic.

The cost of a connection is the growth of the broker's resident memory, divided by the number of connections. A few
come and go before: what a broker makes once, for its first client, is no connection's.
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
FIRST: Final = 2 * AT_ONCE
"""Connections that come and go before memory is measured."""
QUIET_S: Final = 0.5
"""After the last SUBACK, and DISCONNECT: memory that the broker allocates a moment later belongs to them too."""


def measure(
    target: BenchTarget, connections: int, qos: int, prefix: str, limit_s: float, hold_s: float, pids: list[int]
) -> Sample:
    """Open `connections` connections, or as many as `limit_s` allows."""
    with contextlib.ExitStack() as stack:
        for first in range(0, FIRST, AT_ONCE):
            _open(stack, target, f"{prefix}-first", range(first, first + AT_ONCE), qos)
    time.sleep(QUIET_S)
    before = broker_usage.resident_bytes(broker_usage.family(pids))
    with contextlib.ExitStack() as stack:
        start, opened = time.perf_counter(), 0
        while opened < connections and time.perf_counter() - start < limit_s:
            numbers = range(opened, min(opened + AT_ONCE, connections))
            _open(stack, target, prefix, numbers, qos)
            opened = numbers.stop
        elapsed = time.perf_counter() - start
        time.sleep(QUIET_S)
        grown = broker_usage.resident_bytes(broker_usage.family(pids)) - before
        time.sleep(hold_s)
    sample: Sample = {"connections": opened, "rate": opened / elapsed}
    if pids:
        sample["kib"] = grown / opened / 1024
    return sample


def _open(stack: contextlib.ExitStack, target: BenchTarget, prefix: str, numbers: range, qos: int) -> None:
    """Open a connection of each number, with its subscription. The stack closes them."""
    links = [begin(target, f"{prefix}-device-{number:08}") for number in numbers]
    for link in links:
        stack.callback(link.close)
        finish(link)
    for number, link in zip(numbers, links, strict=True):
        ask(link, [f"{prefix}/devices/{number:08}/commands/+"], qos)
    for number, link in zip(numbers, links, strict=True):
        granted(link, [f"{prefix}/devices/{number:08}/commands/+"], qos)
