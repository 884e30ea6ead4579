"""If a node's tables differ from those of a majority of the cores, it raises an alarm and bootstraps the shard.

It waits a random time within LOG_MEND_SPREAD_S, so that not all such nodes ask for tables at once. Until then it uses
its tables, but sends them to no other node. The alarm ends when a later checkpoint agrees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from flockmq import bounds
from flockmq.rlog.digests import CheckpointDigests, Comparison, compare_digests
from flockmq.rlog.errors import LogLost
from flockmq.rlog.replica import Replica

log = logging.getLogger(__name__)


def alarm_of(shard: str) -> str:
    """The prefix of alarms about wrong digests of the shard."""
    return f"digests/{shard}"


class Repair:
    """`distrust(shard)` marks tables as wrong. `alarm(name, text)` raises an alarm; an empty text ends it."""

    def __init__(
        self,
        replica: Replica,
        is_core: bool,
        distrust: Callable[[str], None],
        alarm: Callable[[str, str], None],
        random: Random,
    ) -> None:
        self.mismatches = 0
        self._replica = replica
        self._is_core = is_core
        self._distrust = distrust
        self._alarm = alarm
        self._random = random
        self._last_comparison: dict[str, Comparison] = {}
        self._alarmed: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def compare(self, shard: str, others: Sequence[CheckpointDigests], cores: int) -> None:
        """Compare this node's digests with those that other cores report."""
        if self._replica.is_distrusted(shard):
            return
        comparison = compare_digests(self._replica.tables.shards[shard].checkpoints, self._is_core, others, cores)
        if comparison is None or comparison == self._last_comparison.get(shard):
            return
        self._last_comparison[shard] = comparison
        if comparison.kind == "right":
            self._end_alarm(shard)
            return
        self.mismatches += 1
        if comparison.kind == "wrong":
            text = (
                f"shard {shard}: this node's tables at {comparison.position} are not those of a majority of the cores"
            )
            log.error("%s: it bootstraps them anew within %g s", text, bounds.LOG_MEND_SPREAD_S)
            self._distrust(shard)
            delay_s = self._random.uniform(0.0, bounds.LOG_MEND_SPREAD_S)
            self._timers[shard] = asyncio.get_running_loop().call_later(delay_s, self._bootstrap_again, shard)
        else:
            at = comparison.position
            text = f"shard {shard}: the cores' tables differ at {at}, and no majority of them has the same"
            log.error("%s: it is unknown which are right", text)
        self._alarmed.add(shard)
        self._alarm(alarm_of(shard), text)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _bootstrap_again(self, shard: str) -> None:
        del self._timers[shard]
        try:
            self._replica.bootstrap(shard)
        except LogLost as error:
            log.error("shard %s can't be repaired: %s", shard, error)

    def _end_alarm(self, shard: str) -> None:
        if shard in self._alarmed:
            self._alarmed.discard(shard)
            self._alarm(alarm_of(shard), "")
