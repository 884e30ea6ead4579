"""How log lines look: one line each, as text for people or as JSON for machines. Never a secret, never a payload."""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from flockmq.bounds import RETRIED_QUIETLY_MAX_S
from flockmq.clock import SYSTEM

TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class _OneLine(logging.Formatter):
    """Text; a traceback or a message of several lines is folded, so that a line is always a whole record."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", " ⏎ ")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(line_format: str, level: str) -> None:
    """Log to stderr from now on; so what OpenSSL's callbacks can't raise, as for a server name that is no text."""
    refused = Sparing(logging.getLogger(__name__), 1, SYSTEM.monotonic)
    sys.unraisablehook = lambda caught: refused.warning("%s: %r", caught.err_msg or "ignored", caught.exc_value)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if line_format == "json" else _OneLine(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class Sparing:
    """A logger for what a hostile client can bring about as often as it likes: so many lines a second, and then how
    many more there were."""

    def __init__(self, log: logging.Logger, lines_per_s: int, now_s: Callable[[], float]) -> None:
        self._log = log
        self._lines_per_s = lines_per_s
        self._now_s = now_s
        self._since_s = float("-inf")
        self._lines = 0

    def info(self, message: str, *values: object) -> None:
        self._say(logging.INFO, message, *values)

    def warning(self, message: str, *values: object) -> None:
        self._say(logging.WARNING, message, *values)

    def _say(self, level: int, message: str, *values: object) -> None:
        now_s = self._now_s()
        if now_s - self._since_s >= 1.0:
            if self._lines > self._lines_per_s:
                self._log.log(level, "%d more like this", self._lines - self._lines_per_s)
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= self._lines_per_s:
            self._log.log(level, message, *values)


class Retrying:
    """What fails and is tried again: others may only be about to start, or to end, so it is INFO at first, and WARNING
    when it has lasted for RETRIED_QUIETLY_MAX_S. The same is said once at each level."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._since_s: float | None = None
        self._said: tuple[int, str] = (0, "")

    def failed(self, message: str, *values: object) -> None:
        now_s = self._now_s()
        if self._since_s is None:
            self._since_s = now_s
        level = logging.WARNING if now_s - self._since_s >= RETRIED_QUIETLY_MAX_S else logging.INFO
        said = level, message % values
        if said != self._said:
            self._said = said
            self._log.log(level, "%s", said[1])

    def worked(self) -> None:
        self._since_s, self._said = None, (0, "")
