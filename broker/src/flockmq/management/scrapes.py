"""Makes the text of /metrics, which takes milliseconds of the event loop and needs no key.

Invariants: the text is made at most every METRICS_MADE_EVERY_S, for all requests that wait by then. So it is never
older than the request, and many requests take only a small share of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from flockmq.bounds import METRICS_MADE_EVERY_S
from flockmq.management.view import NodeView
from flockmq.telemetry.sample import Sample, Samples


class Scrapes:
    """One per server. `make` returns the text."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make: Final = make
        self._next: asyncio.Future[bytes] | None = None
        self._may_be_made_at = 0.0

    async def text(self) -> bytes:
        """The text, made after this call. Raises what `make` raises."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_at(max(self._may_be_made_at, loop.time()), self._answer, self._next)
        return await asyncio.shield(self._next)

    def _answer(self, asked: asyncio.Future[bytes]) -> None:
        self._next = None
        try:
            asked.set_result(self._make())
        except Exception as error:
            asked.set_exception(error)
        self._may_be_made_at = asyncio.get_running_loop().time() + METRICS_MADE_EVERY_S


def samples_of(node: NodeView, samples: Samples) -> Iterator[Sample]:
    """All samples that /metrics shows."""
    status = node.status()
    yield Sample("flockmq_info", 1, (status.version, status.build, status.role, status.name))
    yield Sample("flockmq_ready", node.ready()[0])
    yield Sample("flockmq_draining", node.draining())
    yield Sample("flockmq_uptime_seconds", status.uptime_s)
    for shard in status.shards:
        yield Sample("flockmq_rlog_lag_entries", shard.lag_entries, (shard.shard,))
        yield Sample("flockmq_rlog_lag_seconds", shard.lag_ms / 1000, (shard.shard,))
    yield from samples()
