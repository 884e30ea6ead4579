"""Whether this node's tables are new enough to match what is acknowledged by them.

Ten times a second each core that belongs to a majority tells every node it is linked with how far it knows the log to
reach: what it applied, what it appended for others, what other cores said. A node is *stale* while it is behind that
in one of the shards that messages are matched by, or heard of no such core, for longer than `max_stale_s`; less what it
takes for news to come round. So whoever acknowledges a message later than `max_stale_s` after a SUBACK knew of the
subscription. While Redis is down no log goes on, so nobody is stale for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from flockmq.bounds import LINK_LOOK_S
from flockmq.cluster import frames
from flockmq.cluster.mesh import Mesh
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import CLUSTER, ROUTE, SHARDS

NOTE: Final = "log.heads"
MATCHED_BY: Final = (ROUTE, CLUSTER)
BEHIND_ROUND_S: Final = 3 * LINK_LOOK_S
"""A core's next note, what another core had to tell it first, and this node's next look."""
UNHEARD_ROUND_S: Final = LINK_LOOK_S


class Heads(msgspec.Struct, array_like=True, frozen=True):
    """What a core of a majority says."""

    heads: dict[str, StreamId]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final[msgspec.msgpack.Decoder[Heads]] = msgspec.msgpack.Decoder(Heads)


class Freshness:
    """`settled`: a core's, whether it belongs to a majority, at a time. The plain attributes are set before `look`."""

    def __init__(self, mesh: Mesh, settled: Callable[[float], bool] | None, max_stale_s: float) -> None:
        self.rlog: Rlog | None = None
        self.on_change: Callable[[bool], None] = _ignore
        """The node is stale now, or isn't any more."""
        self.is_stale = False
        self._mesh = mesh
        self._settled = settled
        self._max_stale_s = max_stale_s
        self._heard_at = 0.0

    def heard(self, now: float, body: bytes) -> None:
        """A core's note. Raises msgspec.MsgspecError."""
        heads = _decode.decode(body).heads
        self._heard_at = now
        if self.rlog is not None:
            for shard in SHARDS:
                if (head := heads.get(shard)) is not None:
                    self.rlog.note_head(shard, head)

    def look(self, now: float) -> None:
        """Ten times a second: tell the others, if this is a core, and see how this node is."""
        rlog = self.rlog
        if rlog is None:
            return
        if self._settled is None:
            unheard = now - self._heard_at > self._max_stale_s - UNHEARD_ROUND_S
        else:
            unheard = not self._settled(now)
            if not unheard:
                self._tell(rlog)
        behind_s = max(rlog.lag(shard)[1] for shard in MATCHED_BY) / 1000
        stale = unheard or behind_s > self._max_stale_s - BEHIND_ROUND_S
        if stale != self.is_stale:
            self.is_stale = stale
            self.on_change(stale)

    def _tell(self, rlog: Rlog) -> None:
        heads = Heads({shard: rlog.head(shard) for shard in SHARDS})
        encoded = frames.control(frames.Note(NOTE, _encode(heads)))
        for link in self._mesh.links():
            link.send(encoded)


def _ignore(_: bool) -> None:
    """Nobody asked to be told."""
