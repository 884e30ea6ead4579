"""A node whose tables differ from those of a majority of the cores says so, and bootstraps the shard anew.

At a random time within LOG_MEND_SPREAD_S, so that many such nodes don't ask for tables at once. Until then the tables
are used on, but nobody else builds upon them. The alarm ends when a later checkpoint agrees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from flockmq import bounds
from flockmq.rlog.digests import Checked, Verdict, judge
from flockmq.rlog.errors import LogLost
from flockmq.rlog.replica import Replica

log = logging.getLogger(__name__)


def alarm_of(shard: str) -> str:
    """What a node's alarm that its digests of the shard are wrong begins with."""
    return f"digests/{shard}"


class Repair:
    """`distrust(shard)` marks tables as wrong; `alarm(name, text)` raises an alarm, and ends it with the text ""."""

    def __init__(
        self,
        replica: Replica,
        votes: bool,
        distrust: Callable[[str], None],
        alarm: Callable[[str, str], None],
        random: Random,
    ) -> None:
        self.mismatches = 0
        self._replica = replica
        self._votes = votes
        self._distrust = distrust
        self._alarm = alarm
        self._random = random
        self._judged: dict[str, Verdict] = {}
        self._alarmed: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def compare(self, shard: str, others: Sequence[Checked], cores: int) -> None:
        """Hold this node's digests against what other cores say of theirs."""
        if self._replica.is_distrusted(shard):
            return
        verdict = judge(self._replica.tables.shards[shard].checkpoints, self._votes, others, cores)
        if verdict is None or verdict == self._judged.get(shard):
            return
        self._judged[shard] = verdict
        if verdict.kind == "right":
            self._end_alarm(shard)
            return
        self.mismatches += 1
        if verdict.kind == "wrong":
            text = f"shard {shard}: this node's tables at {verdict.place} are not those of a majority of the cores"
            log.error("%s: it bootstraps them anew within %g s", text, bounds.LOG_MEND_SPREAD_S)
            self._distrust(shard)
            delay_s = self._random.uniform(0.0, bounds.LOG_MEND_SPREAD_S)
            self._timers[shard] = asyncio.get_running_loop().call_later(delay_s, self._mend, shard)
        else:
            text = f"shard {shard}: the cores' tables differ at {verdict.place}, and no majority of them has the same"
            log.error("%s: nobody can say which are right", text)
        self._alarmed.add(shard)
        self._alarm(alarm_of(shard), text)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _mend(self, shard: str) -> None:
        del self._timers[shard]
        try:
            self._replica.bootstrap(shard)
        except LogLost as error:
            log.error("shard %s can't be mended: %s", shard, error)

    def _end_alarm(self, shard: str) -> None:
        if shard in self._alarmed:
            self._alarmed.discard(shard)
            self._alarm(alarm_of(shard), "")
