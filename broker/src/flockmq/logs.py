"""The format and the rate limits of log lines. A record is one line, as text or as JSON, without secrets or payloads.

Invariants: texts from clients are shown by `%r`, cut to LOGGED_MAX_CHARACTERS. There are at most LOG_LINES_PER_S lines
of one kind per second, and fewer of kinds that clients cause (`Sparing`). After the second, the log says how many lines
were left out. So clients can't fill a log, and can't hide how often they tried something.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from flockmq.bounds import (
    LOG_KINDS_COUNTED_S,
    LOG_LINE_MAX_CHARACTERS,
    LOG_LINES_PER_S,
    LOGGED_MAX_CHARACTERS,
    RETRIED_QUIETLY_MAX_S,
)
from flockmq.clock import SYSTEM

AUDIT: Final = "flockmq.audit"
"""The logger of changes through the REST API. Its lines are never cut or left out."""
_MORE: Final = "%d more like this: %s"
TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class _Long:
    """A text of which `%r` shows only the beginning."""

    def __init__(self, text: str | bytes) -> None:
        self._text = text

    def __str__(self) -> str:
        return str(self._text)

    def __repr__(self) -> str:
        return f"{self._text[:LOGGED_MAX_CHARACTERS]!r}…"


def message_of(record: logging.LogRecord) -> str:
    """The record's message, with long texts cut."""
    if record.name == AUDIT:
        return record.getMessage()
    args: Any = record.args
    if isinstance(args, tuple):
        is_long = [isinstance(arg, str | bytes) and len(arg) > LOGGED_MAX_CHARACTERS for arg in args]
        if any(is_long):
            record = copy.copy(record)
            record.args = tuple(_Long(arg) if long else arg for arg, long in zip(args, is_long, strict=True))
    message = record.getMessage()
    return message if len(message) <= LOG_LINE_MAX_CHARACTERS else f"{message[:LOG_LINE_MAX_CHARACTERS]}…"


class _OneLine(logging.Formatter):
    """Formats a record as one line of text. Line breaks in messages and tracebacks are replaced."""

    def format(self, record: logging.LogRecord) -> str:
        bounded = copy.copy(record)
        bounded.msg, bounded.args = message_of(record), ()
        return super().format(bounded).replace("\n", " ⏎ ")


class _Json(logging.Formatter):
    """`node`: named in each line, if it isn't empty."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._node,
            "logger": record.name,
            "message": message_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Kinds:
    """Counts the lines of each kind in the current second, which begins with its first line. After it, `report` is
    called with the number of lines left out of each kind: by a timer if an event loop runs in this thread, else with
    the next line of any kind."""

    def __init__(self, now_s: Callable[[], float], report: Callable[[str, str, int], None]) -> None:
        self._now_s = now_s
        self._report = report
        self._since_s = float("-inf")
        self._lines: dict[tuple[str, str], int] = {}
        self._more: dict[tuple[str, str], int] = {}

    def has_room(self, name: str, message: str, lines_max: int) -> bool:
        """Count a line of this kind. Returns whether it may be shown."""
        now_s = self._now_s()
        if now_s - self._since_s >= LOG_KINDS_COUNTED_S:
            self.report_left_out()
            self._since_s = now_s
        kind = name, message
        lines = self._lines[kind] = self._lines.get(kind, 0) + 1
        if lines <= lines_max:
            return True
        if not self._more:
            self._report_later(self._since_s + LOG_KINDS_COUNTED_S - now_s)
        self._more[kind] = lines - lines_max
        return False

    def report_left_out(self) -> None:
        more, self._more = self._more, {}
        self._lines.clear()
        self._since_s = float("-inf")
        for (name, message), lines in more.items():
            self._report(name, message, lines)

    def _report_later(self, delay_s: float) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        loop.call_later(delay_s, self._report_once, self._more)

    def _report_once(self, more: dict[tuple[str, str], int]) -> None:
        if more is self._more:
            self.report_left_out()


class FewOfAKind(logging.StreamHandler[Any]):
    """Writes to stderr, with a rate limit per kind. Lines are of one kind if their message formats are the same. DEBUG
    lines have no limit."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__(sys.stderr)
        self._kinds = _Kinds(now_s, self._log_left_out)

    def emit(self, record: logging.LogRecord) -> None:
        is_bounded = record.levelno >= logging.INFO and record.name != AUDIT
        if not is_bounded or self._kinds.has_room(record.name, str(record.msg), LOG_LINES_PER_S):
            super().emit(record)

    def _log_left_out(self, name: str, message: str, lines: int) -> None:
        with self.lock or contextlib.nullcontext():
            super().emit(logging.LogRecord(name, logging.WARNING, "", 0, _MORE, (lines, message), None))


def configure(line_format: str, level: str, node: str = "") -> None:
    """Log to stderr, including errors in callbacks of OpenSSL, which can't be raised. Each line names `node`, if one is
    given."""
    refused = Sparing(logging.getLogger(__name__), 1, SYSTEM.monotonic)
    sys.unraisablehook = lambda caught: refused.warning("%s: %r", caught.err_msg or "ignored", caught.exc_value)
    handler = FewOfAKind(SYSTEM.monotonic)
    text = TEXT.replace("%(name)s", f"{node.replace('%', '%%')} %(name)s") if node else TEXT
    handler.setFormatter(_Json(node) if line_format == "json" else _OneLine(text))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def set_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())


class Sparing:
    """A logger for lines that clients can cause any number of times. It logs `lines_per_s` of each kind per second, and
    then how many more there were."""

    def __init__(self, log: logging.Logger, lines_per_s: int, now_s: Callable[[], float]) -> None:
        self._log = log
        self._lines_per_s = lines_per_s
        self._kinds = _Kinds(now_s, self._log_left_out)

    def info(self, message: str, *values: object) -> None:
        self._emit(logging.INFO, message, *values)

    def warning(self, message: str, *values: object) -> None:
        self._emit(logging.WARNING, message, *values)

    def _emit(self, level: int, message: str, *values: object) -> None:
        if self._kinds.has_room(logging.getLevelName(level), message, self._lines_per_s):
            self._log.log(level, message, *values)

    def _log_left_out(self, level: str, message: str, lines: int) -> None:
        self._log.log(logging.getLevelNamesMapping()[level], _MORE, lines, message)


class Retrying:
    """A logger for failures that are retried. It logs INFO at first, because another node may just be starting or
    stopping, and WARNING when the failure lasts for RETRIED_QUIETLY_MAX_S. The same message is logged once per level.
    After `leave`, when the node stops, it logs only INFO."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._since_s: float | None = None
        self._last: tuple[int, str] = (0, "")
        self._is_leaving = False

    def failed(self, message: str, *values: object) -> None:
        now_s = self._now_s()
        if self._since_s is None:
            self._since_s = now_s
        lasts = now_s - self._since_s >= RETRIED_QUIETLY_MAX_S
        level = logging.WARNING if lasts and not self._is_leaving else logging.INFO
        line = level, message % values
        if line != self._last:
            self._last = line
            self._log.log(level, message, *values)

    def worked(self) -> None:
        self._since_s, self._last = None, (0, "")

    def leave(self) -> None:
        self._is_leaving = True
