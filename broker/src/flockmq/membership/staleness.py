"""Whether this node's tables are new enough to match what is acknowledged by them.

Ten times a second each core that belongs to a majority tells every node it is linked with how far it knows the log to
reach: what it applied, what it appended for others, what other cores said. A node's tables are as new as the latest of
these notes that they have reached, in the shards that messages are matched by; it is *stale* when that one was *said*
longer ago than `max_stale_s`, less what it takes for news to come round. So whoever acknowledges a message later than
`max_stale_s` after a SUBACK knew of the subscription. While Redis is down no log goes on, so nobody is stale for that.

What a link held back while it was cut, or what waited while this node stood still, comes late and tells of a log that
went on since. When a note was said is told by its core's clock, beside the quickest of its notes lately.

A node that no news came to for `max_stale_s`, or that stood still, may have been purged: it *doubts* until its tables
have reached what was said since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from flockmq.bounds import HEADS_CORES_MAX, HEADS_NOTES_MAX, HEADS_QUICKEST_S, LINK_LOOK_S
from flockmq.membership import frames
from flockmq.membership.mesh import Mesh
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, ROUTE, SHARDS

NOTE: Final = "log.heads"
MATCHED_BY: Final = (ROUTE, CLUSTER)
BEHIND_ROUND_S: Final = 3 * LINK_LOOK_S
"""A core's next note, what another core had to tell it first, and this node's next look."""
SAID_ROUND_S: Final = 2 * LINK_LOOK_S
"""Without the first of these."""


class Heads(msgspec.Struct, array_like=True, frozen=True):
    """What a core of a majority says, and when, by its monotonic clock."""

    heads: dict[str, StreamId]
    at_s: float


class _Quickest:
    """How far this node's clock was ahead of a core's when its quickest note lately came: what a note is later than
    that it was under way. Two stretches, for clocks drift.
    """

    __slots__ = ("_before", "_lately", "_since")

    def __init__(self, now: float) -> None:
        self._before = self._lately = inf
        self._since = now

    def late_s(self, now: float, ahead: float) -> float:
        if now - self._since > HEADS_QUICKEST_S:
            self._before, self._lately, self._since = self._lately, inf, now
        self._lately = min(self._lately, ahead)
        return ahead - min(self._before, self._lately)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final[msgspec.msgpack.Decoder[Heads]] = msgspec.msgpack.Decoder(Heads)


class Staleness:
    """`settled`: a core's, whether it belongs to a majority, at a time. The plain attributes are set before `look`."""

    def __init__(self, mesh: Mesh, settled: Callable[[float], bool] | None, max_stale_s: float) -> None:
        self.rlog: Rlog | None = None
        self.on_change: Callable[[bool], None] = _ignore
        """The node is stale now, or isn't any more."""
        self.is_stale = True
        """Until it was looked at."""
        self._mesh = mesh
        self._settled = settled
        self._max_stale_s = max_stale_s
        self._reached_at = 0.0
        """When the latest note was said that the tables have reached."""
        self._notes: deque[tuple[float, list[tuple[str, StreamId]]]] = deque(maxlen=HEADS_NOTES_MAX)
        """Those that they haven't, and when they were said."""
        self._said_at = 0.0
        """When the latest of all was."""
        self._doubts = False
        self._quickest: dict[str, _Quickest] = {}

    def heard(self, now: float, core: str, body: bytes) -> None:
        """A core's note. Raises msgspec.MsgspecError."""
        note = _decode.decode(body)
        self.doubts(now)  # with this note it is in touch again, and its tables may not have what it missed
        heads = note.heads
        if self.rlog is not None:
            for shard in SHARDS:
                if (head := heads.get(shard)) is not None:
                    self.rlog.note_log_end(shard, head)
        said_at = now - self._quickest_of(core, now).late_s(now, now - note.at_s)
        self._said_at = max(self._said_at, said_at)
        self._notes.append((said_at, [(shard, heads[shard]) for shard in MATCHED_BY if shard in heads]))

    def _quickest_of(self, core: str, now: float) -> _Quickest:
        known = self._quickest.get(core)
        if known is None:
            if len(self._quickest) >= HEADS_CORES_MAX:
                del self._quickest[next(iter(self._quickest))]
            known = self._quickest[core] = _Quickest(now)
        return known

    def look(self, now: float) -> None:
        """Ten times a second: tell the others, if this is a core, and see how this node is."""
        rlog = self.rlog
        if rlog is None:
            return
        self.doubts(now)
        if self._settled is None:
            self._look_at_notes(rlog)
            stale = now - self._reached_at > self._max_stale_s - SAID_ROUND_S
        elif self._settled(now):
            self._tell(rlog, now)
            behind_s = max(rlog.lag(shard)[1] for shard in MATCHED_BY) / 1000
            stale = behind_s > self._max_stale_s - BEHIND_ROUND_S
        else:
            stale = True
        if not stale and not self._is_out_of_touch(now) and self._has_caught_up(rlog):
            self._doubts = False
        if stale != self.is_stale:
            self.is_stale = stale
            self.on_change(stale)

    def doubts(self, now: float) -> bool:
        """This node may have been purged, and not know it."""
        self._doubts = self._doubts or (self.rlog is not None and self._is_out_of_touch(now))
        return self._doubts

    def _has_caught_up(self, rlog: Rlog) -> bool:
        """A core isn't stale as soon as it is behind; another node is until its tables have reached what was said."""
        return self._settled is None or rlog.lag(CLUSTER)[0] == 0

    def _is_out_of_touch(self, now: float) -> bool:
        return now - self._said_at > self._max_stale_s if self._settled is None else not self._settled(now)

    def _look_at_notes(self, rlog: Rlog) -> None:
        """Of several cores' notes none must wait for another."""
        waiting = deque[tuple[float, list[tuple[str, StreamId]]]](maxlen=HEADS_NOTES_MAX)
        for said_at, heads in self._notes:
            if all(rlog.applied(shard) >= head for shard, head in heads):
                self._reached_at = max(self._reached_at, said_at)
            else:
                waiting.append((said_at, heads))
        self._notes = waiting

    def _tell(self, rlog: Rlog, now: float) -> None:
        heads = Heads({shard: rlog.log_end(shard) for shard in SHARDS}, now)
        encoded = frames.control(frames.Note(NOTE, _encode(heads)))
        for link in self._mesh.one_of_each():
            link.send(encoded)


def _ignore(_: bool) -> None:
    """Nobody asked to be told."""
