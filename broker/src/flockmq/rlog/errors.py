"""What can go wrong with the log, as types. `code` and `text` carry an error over a cluster link, `from_code` back."""

from __future__ import annotations

from typing import ClassVar


class LogError(Exception):
    """Base of all errors of the log."""

    code: ClassVar[str] = "log"


class LogUnavailable(LogError):
    """Redis or the cores are away, slow or full: the same write may be tried again. A write that ends so may still be
    applied later, but in a shard whose writes are `SURE` (shards.py); who must undo it writes the inverse, which is
    ordered behind it."""

    code = "unavailable"


class RedisUnreachable(LogUnavailable):
    """Redis does not answer. The text names host and port and the cause, never the password."""

    code = "redis_unreachable"


class RedisRefused(RedisUnreachable):
    """Redis refuses us: the password, the user's rights, a certificate. Somebody must mend it; the text says what."""

    code = "redis_refused"


class LogUntried(LogUnavailable):
    """As LogUnavailable, and sure: what was asked did not reach Redis, and will not by this attempt."""

    code = "untried"


class LogStopping(LogUnavailable):
    """As LogUnavailable: this node is stopping, which is no fault."""


class LogFull(LogError):
    """A bound of a table or of the writes under way is reached; nothing was written."""

    code = "full"


class LogRefused(LogError):
    """The log does not know this incarnation (any more): it was purged, or never registered. It must start anew as
    another incarnation and write its rows again."""

    code = "refused"


class LogFenced(LogUnavailable):
    """Another core leads by now: what only the leader does is refused."""

    code = "fenced"


class LogGap(LogError):
    """The log expects another number of this incarnation; the text is that number."""

    code = "gap"

    @property
    def expected(self) -> int:
        return int(str(self))


class LogLost(LogError):
    """The log was trimmed, or replaced, past what this node has, and there is no other core to ask for its tables."""

    code = "lost"


class LogCorrupt(LogError):
    """Bytes of the log, a bootstrap or a snapshot are not what was written."""

    code = "corrupt"


_BY_CODE: dict[str, type[LogError]] = {
    kind.code: kind
    for kind in (
        *(LogUnavailable, RedisUnreachable, RedisRefused, LogFenced, LogUntried, LogFull),
        *(LogRefused, LogGap, LogLost, LogCorrupt),
    )
}


def from_code(code: str, text: str) -> LogError:
    """The error that another node met, as it is raised here. An unknown code (a newer node) is a plain LogError."""
    return _BY_CODE.get(code, LogError)(text)
