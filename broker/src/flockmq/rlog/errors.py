"""The errors of the log, as types. `code` and `text` carry an error over a cluster link; `from_code` restores it."""

from __future__ import annotations

from flockmq.redis.errors import RedisRefused, RedisUnreachable, StorageError, StorageUnavailable


class LogUntried(StorageUnavailable):
    """A StorageUnavailable that is certain: the request did not reach Redis and will not by this attempt."""

    code = "untried"


class LogStopping(StorageUnavailable):
    """A StorageUnavailable because this node is stopping, so nothing is wrong."""


class LogFull(StorageError):
    """A table, or the writes under way, would exceed a bound. Nothing was written."""

    code = "full"


class LogRefused(StorageError):
    """The log doesn't know this incarnation: it was purged, or never registered. The node must rejoin with a new
    incarnation and write its rows again."""

    code = "refused"


class LogFenced(StorageUnavailable):
    """Another core is the leader now, so an operation of the leader was refused."""

    code = "fenced"


class LogGap(StorageError):
    """The log expects another sequence number of this incarnation. The error text is that number."""

    code = "gap"

    @property
    def expected(self) -> int:
        return int(str(self))


class LogLost(StorageError):
    """The log was trimmed or replaced beyond this node's position, and no other core can send its tables."""

    code = "lost"


class LogCorrupt(StorageError):
    """Bytes of the log, of a bootstrap or of a snapshot can't be read."""

    code = "corrupt"


_BY_CODE: dict[str, type[StorageError]] = {
    kind.code: kind
    for kind in (
        *(StorageUnavailable, RedisUnreachable, RedisRefused, LogFenced, LogUntried, LogFull),
        *(LogRefused, LogGap, LogLost, LogCorrupt),
    )
}


def from_code(code: str, text: str) -> StorageError:
    """Restore the error that another node raised. An unknown code (from a newer node) gives a plain StorageError."""
    return _BY_CODE.get(code, StorageError)(text)
