"""Errors of Redis, as types; errors of the log are in rlog/errors.py.

`code` and `text` carry an error over a cluster link, so codes never change.
"""

from __future__ import annotations

from typing import ClassVar


class StorageError(Exception):
    """The base of all errors of Redis and of the log."""

    code: ClassVar[str] = "log"


class StorageUnavailable(StorageError):
    """Redis or the cores are unreachable, slow or full: the caller may retry the write. The failed write may still be
    applied later, except in a shard of `FAIL_WITHOUT_EFFECT` (rlog/schema.py). To undo it write the inverse, which is
    ordered after it."""

    code = "unavailable"


class RedisUnreachable(StorageUnavailable):
    """Redis does not answer. The text has host, port and the cause, never the password."""

    code = "redis_unreachable"


class RedisRefused(RedisUnreachable):
    """Redis refuses this node: its password, its user's rights, or a certificate. An operator must correct it; the text
    says what."""

    code = "redis_refused"
