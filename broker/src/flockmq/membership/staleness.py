"""Whether this node's tables are fresh enough: acknowledged messages are matched by them.

Ten times a second each core that is in a majority sends a note to every linked node: how far it knows the log to reach.
This covers what it applied, what it appended for others, and what other cores sent. A node's tables are as fresh as the
latest note that they have reached, in the shards used for matching. The node is *stale* if that note was *sent* longer
ago than `max_stale_s`, minus the time that news needs to spread. So a node that acknowledges a message later than
`max_stale_s` after a SUBACK knew of the subscription. While Redis is down the log doesn't grow, so this makes no node
stale.

Notes that a broken link held back, or that waited while this process was paused, arrive late, and the log has grown
since. So the sending time of a note is taken from its core's clock, compared with the core's fastest note in the last
period.

A node that got no news for `max_stale_s`, or was paused, may have been purged. It is *in doubt* until its tables have
reached what was sent since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from flockmq.bounds import HEADS_CORES_MAX, HEADS_NOTES_MAX, HEADS_QUICKEST_S, LINK_LOOK_S
from flockmq.default_callbacks import ignore
from flockmq.membership import frames
from flockmq.membership.mesh import Mesh
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, ROUTE, SHARDS

NOTE: Final = "log.heads"
MATCHED_BY: Final = (ROUTE, CLUSTER)
BEHIND_ROUND_S: Final = 3 * LINK_LOOK_S
"""How long it may take a core to notice that it is behind. LINK_LOOK_S may pass three times: until a core's next note,
until that core has received another core's note, and until this node's next check."""
SENT_ROUND_S: Final = 2 * LINK_LOOK_S
"""The same for other nodes, without the wait for the next note: a note's age is counted from when it was sent."""


class LogEndNote(msgspec.Struct, array_like=True, frozen=True):
    """What a core in a majority sends: the log's ends, and the time by its monotonic clock."""

    log_ends: dict[str, StreamId]
    at_s: float


class _FastestNote:
    """Estimates how long a note of one core was delayed. The fastest note of the last period counts as not delayed; any
    further lateness of a note is its delay. Two periods are kept because clocks drift."""

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
_decode: Final[msgspec.msgpack.Decoder[LogEndNote]] = msgspec.msgpack.Decoder(LogEndNote)


class Staleness:
    """`in_majority`: on a core, whether it is in a majority at a given time. The plain attributes are set before
    `look`."""

    def __init__(self, mesh: Mesh, in_majority: Callable[[float], bool] | None, max_stale_s: float) -> None:
        self.rlog: Rlog | None = None
        self.on_change: Callable[[bool], None] = ignore
        """The node is stale now, or isn't any more."""
        self.is_stale = True
        """True until the first check."""
        self._mesh = mesh
        self._in_majority = in_majority
        self._max_stale_s = max_stale_s
        self._reached_at = 0.0
        """When the latest note was sent that the tables have reached."""
        self._notes: deque[tuple[float, list[tuple[str, StreamId]]]] = deque(maxlen=HEADS_NOTES_MAX)
        """Notes that they haven't reached, with their sending times."""
        self._sent_at = 0.0
        """When the latest note of all was sent."""
        self._in_doubt = False
        self._fastest: dict[str, _FastestNote] = {}

    def received(self, now: float, core: str, body: bytes) -> None:
        """Handle a core's note. Raises msgspec.MsgspecError."""
        note = _decode.decode(body)
        self.is_in_doubt(now)  # before this note ends the silence: the tables may lack what it missed
        log_ends = note.log_ends
        if self.rlog is not None:
            for shard in SHARDS:
                if (log_end := log_ends.get(shard)) is not None:
                    self.rlog.note_log_end(shard, log_end)
        sent_at = now - self._fastest_of(core, now).late_s(now, now - note.at_s)
        self._sent_at = max(self._sent_at, sent_at)
        self._notes.append((sent_at, [(shard, log_ends[shard]) for shard in MATCHED_BY if shard in log_ends]))

    def _fastest_of(self, core: str, now: float) -> _FastestNote:
        known = self._fastest.get(core)
        if known is None:
            if len(self._fastest) >= HEADS_CORES_MAX:
                del self._fastest[next(iter(self._fastest))]
            known = self._fastest[core] = _FastestNote(now)
        return known

    def look(self, now: float) -> None:
        """Ten times a second: a core sends its note; every node updates `is_stale`."""
        rlog = self.rlog
        if rlog is None:
            return
        self.is_in_doubt(now)
        if self._in_majority is None:
            self._look_at_notes(rlog)
            stale = now - self._reached_at > self._max_stale_s - SENT_ROUND_S
        elif self._in_majority(now):
            self._send_note(rlog, now)
            behind_s = max(rlog.lag(shard)[1] for shard in MATCHED_BY) / 1000
            stale = behind_s > self._max_stale_s - BEHIND_ROUND_S
        else:
            stale = True
        if not stale and not self._is_out_of_touch(now) and self._has_caught_up(rlog):
            self._in_doubt = False
        if stale != self.is_stale:
            self.is_stale = stale
            self.on_change(stale)

    def is_in_doubt(self, now: float) -> bool:
        """True if this node may have been purged without knowing it."""
        self._in_doubt = self._in_doubt or (self.rlog is not None and self._is_out_of_touch(now))
        return self._in_doubt

    def _has_caught_up(self, rlog: Rlog) -> bool:
        """A core may be behind without being stale. Another node is stale until its tables have reached what was
        sent."""
        return self._in_majority is None or rlog.lag(CLUSTER)[0] == 0

    def _is_out_of_touch(self, now: float) -> bool:
        return now - self._sent_at > self._max_stale_s if self._in_majority is None else not self._in_majority(now)

    def _look_at_notes(self, rlog: Rlog) -> None:
        """Check each note separately, so that one core's note doesn't wait for another's."""
        waiting = deque[tuple[float, list[tuple[str, StreamId]]]](maxlen=HEADS_NOTES_MAX)
        for sent_at, log_ends in self._notes:
            if all(rlog.applied(shard) >= log_end for shard, log_end in log_ends):
                self._reached_at = max(self._reached_at, sent_at)
            else:
                waiting.append((sent_at, log_ends))
        self._notes = waiting

    def _send_note(self, rlog: Rlog, now: float) -> None:
        log_ends = LogEndNote({shard: rlog.log_end(shard) for shard in SHARDS}, now)
        encoded = frames.control(frames.Note(NOTE, _encode(log_ends)))
        for link in self._mesh.one_of_each():
            link.send(encoded)
