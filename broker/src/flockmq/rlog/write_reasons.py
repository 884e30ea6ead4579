"""What MQTT says of a write to the log: its reason code for a client."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flockmq import bounds
from flockmq.clock import Clock
from flockmq.logs import Sparing
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogFull, LogStopping

log: Final = logging.getLogger(__name__)


class WriteReasons:
    """Logs why writes failed, a few lines a second."""

    def __init__(self, clock: Clock) -> None:
        self._failures = Sparing(log, bounds.REFUSALS_LOGGED_PER_S, clock.monotonic)

    def of(self, done: asyncio.Future[StreamId]) -> int:
        """The result of a write as a reason code."""
        error = None if done.cancelled() else done.exception()
        if error is None:
            return Reason.UNSPECIFIED_ERROR if done.cancelled() else Reason.SUCCESS
        log_line = self._failures.info if isinstance(error, LogStopping) else self._failures.warning
        log_line("%s", error)
        return Reason.QUOTA_EXCEEDED if isinstance(error, LogFull) else Reason.UNSPECIFIED_ERROR
