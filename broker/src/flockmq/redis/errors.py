"""What goes wrong where Redis is asked, as types: with Redis itself here, with the log in rlog/errors.py.

`code` and `text` carry an error over a cluster link, so codes never change.
"""

from __future__ import annotations

from typing import ClassVar


class StorageError(Exception):
    """Base of all errors of Redis and of the log."""

    code: ClassVar[str] = "log"


class StorageUnavailable(StorageError):
    """Redis or the cores are away, slow or full: the caller may try the same write again. A write that ends so may
    still be applied later, except in a shard whose writes are `SURE` (rlog/schema.py). Who must undo it writes the
    inverse, which is ordered behind it."""

    code = "unavailable"


class RedisUnreachable(StorageUnavailable):
    """Redis does not answer. The text names host and port and the cause, never the password."""

    code = "redis_unreachable"


class RedisRefused(RedisUnreachable):
    """Redis refuses us: the password, the user's rights, a certificate. Somebody must mend it; the text says what."""

    code = "redis_refused"
