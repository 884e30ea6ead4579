"""What can go wrong with the log, as types. `code` and `text` carry an error over a cluster link, `from_code` back."""

from __future__ import annotations

from flockmq.redis.errors import RedisRefused, RedisUnreachable, StorageError, StorageUnavailable


class LogUntried(StorageUnavailable):
    """As StorageUnavailable, and sure: what was asked did not reach Redis, and will not by this attempt."""

    code = "untried"


class LogStopping(StorageUnavailable):
    """As StorageUnavailable: this node is stopping, which is no fault."""


class LogFull(StorageError):
    """A bound of a table or of the writes under way is reached; nothing was written."""

    code = "full"


class LogRefused(StorageError):
    """The log does not know this incarnation (any more): it was purged, or never registered. It must start anew as
    another incarnation and write its rows again."""

    code = "refused"


class LogFenced(StorageUnavailable):
    """Another core leads by now: what only the leader does is refused."""

    code = "fenced"


class LogGap(StorageError):
    """The log expects another number of this incarnation; the text is that number."""

    code = "gap"

    @property
    def expected(self) -> int:
        return int(str(self))


class LogLost(StorageError):
    """The log was trimmed, or replaced, past what this node has, and there is no other core to ask for its tables."""

    code = "lost"


class LogCorrupt(StorageError):
    """Bytes of the log, a bootstrap or a snapshot are not what was written."""

    code = "corrupt"


_BY_CODE: dict[str, type[StorageError]] = {
    kind.code: kind
    for kind in (
        *(StorageUnavailable, RedisUnreachable, RedisRefused, LogFenced, LogUntried, LogFull),
        *(LogRefused, LogGap, LogLost, LogCorrupt),
    )
}


def from_code(code: str, text: str) -> StorageError:
    """The error that another node met, as it is raised here. An unknown code (a newer node) is a plain StorageError."""
    return _BY_CODE.get(code, StorageError)(text)
