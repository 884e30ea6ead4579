"""A report's headline, for whoever can't read its volume: a line of JSON that a pod leaves behind when it has ended.

Kubernetes keeps at most 4 KiB of such a message, and who may see the cluster's status sees it: so it has figures, and
sentences that are made of figures, but no name of a client, and no address. Fields are added, never renamed: operators
of other releases read them.

Pure.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from flockmq_analytics.summary import Summary

HEADLINE_MAX_BYTES: Final = 4096
CHANGED_MAX: Final = 8


class Headline(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    day: str
    time_zone: str
    made_at: str
    is_over: bool
    clients: int
    refused: int
    lost_events: int
    """That a node saw and nobody has, of all streams."""
    peak_connections: int | None = None
    """None: there were no samples of nodes. So for `worst_lag_ms`."""
    worst_lag_ms: int | None = None
    changed: tuple[str, ...] = ()
    """What is notably unlike the days before, in words, as many sentences as there is room for."""


def headline(summaries: Sequence[Summary]) -> bytes:
    """Of the last day that is over, or else of the last one; b"": there is none."""
    if not summaries:
        return b""
    told = max(summaries, key=lambda one: (one.is_over, one.day))
    made = Headline(
        day=told.day,
        time_zone=told.time_zone,
        made_at=told.made_at,
        is_over=told.is_over,
        clients=told.clients,
        refused=told.refused,
        lost_events=sum(stream.lost for stream in told.streams.values()),
        peak_connections=told.peak_connections,
        worst_lag_ms=max((shard.max_ms for shard in told.lag.values()), default=None),
        changed=tuple(told.changed[:CHANGED_MAX]),
    )
    while len(encoded := msgspec.json.encode(made)) > HEADLINE_MAX_BYTES:
        made = msgspec.structs.replace(made, changed=made.changed[:-1])
    return encoded
