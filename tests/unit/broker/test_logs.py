"""What can be brought about from outside doesn't fill the log."""

import asyncio
import logging
import os
import subprocess
import sys
import time

import pytest

from flockmq import logs
from flockmq.bounds import LOG_LINE_MAX_CHARACTERS, LOG_LINES_PER_S, LOGGED_MAX_CHARACTERS, RETRIED_QUIETLY_MAX_S
from flockmq.logs import AUDIT, FewOfAKind, Retrying, Sparing


def test_so_many_lines_a_second_and_then_how_many_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = [0.0]
    sparing = Sparing(logging.getLogger("test"), 2, lambda: now[0])
    for number in range(5):
        sparing.info("line %d", number)
    now[0] = 1.0
    sparing.info("later")
    sparing.warning("and at its own level")
    assert caplog.records.pop().levelname == "WARNING"
    assert [record.getMessage() for record in caplog.records] == [
        "line 0",
        "line 1",
        "3 more like this: line %d",
        "later",
    ]


def test_what_is_tried_again_is_a_warning_when_it_lasts_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = [0.0]
    retrying = Retrying(logging.getLogger("test"), lambda: now[0])

    def said() -> list[tuple[str, str]]:
        lines = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return lines

    for error in ("refused", "refused", "no route"):
        retrying.failed("no link to %s: %s", "core-1", error)
    assert said() == [("INFO", "no link to core-1: refused"), ("INFO", "no link to core-1: no route")]
    now[0] = RETRIED_QUIETLY_MAX_S
    for _ in range(2):
        retrying.failed("no link to %s: %s", "core-1", "no route")
    assert said() == [("WARNING", "no link to core-1: no route")]
    retrying.worked()
    retrying.failed("no link to %s: %s", "core-1", "no route")
    assert said() == [("INFO", "no link to core-1: no route")]


def test_who_leaves_warns_nobody_of_what_it_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = [0.0]
    retrying = Retrying(logging.getLogger("test"), lambda: now[0])
    retrying.failed("not written: %s", "refused")
    now[0] = RETRIED_QUIETLY_MAX_S
    retrying.leave()
    retrying.failed("not written: %s", "no route")
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


def test_what_is_tried_again_is_a_kind_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Of each kind there are so many lines a second."""
    caplog.set_level("INFO")
    Retrying(logging.getLogger("test"), lambda: 0.0).failed("not written: %s", "refused")
    assert [record.msg for record in caplog.records] == ["not written: %s"]


def logger_to(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger


def test_of_a_name_and_of_a_line_the_beginning_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    handler = FewOfAKind(time.monotonic)
    handler.setFormatter(logs._OneLine(logs.TEXT))
    logger = logger_to(handler)
    name = "n" * 60_000
    logger.info("client %r, of %r, short %r, %s", name, name.encode(), "a" * LOGGED_MAX_CHARACTERS, "w" * 200)
    logger.info("line %s", "x" * 100_000)
    first, second = capsys.readouterr().err.splitlines()
    cut = "n" * LOGGED_MAX_CHARACTERS
    whole = "a" * LOGGED_MAX_CHARACTERS
    assert first.endswith(f"client '{cut}'…, of b'{cut}'…, short '{whole}', {'w' * 200}")
    assert len(second) < LOG_LINE_MAX_CHARACTERS + 100
    assert second.endswith("x…")


def test_a_machine_reads_no_longer_lines_than_people() -> None:
    logger = logging.getLogger("test")
    record = logger.makeRecord("test", logging.INFO, "f", 1, "client %r", ("n" * 60_000,), None)
    assert logs.message_of(record) == f"client '{'n' * LOGGED_MAX_CHARACTERS}'…"
    assert len(logs._Json("").format(record)) < 500


def test_of_each_kind_there_are_so_many_lines_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    logger = logger_to(FewOfAKind(lambda: now[0]))
    for number in range(LOG_LINES_PER_S + 7):
        logger.info("one kind %d", number)
        logger.debug("what a developer asked for")
    logger.error("another kind", exc_info=ValueError("x"))
    now[0] = 1.0
    logger.info("one kind %d", 100)
    said = capsys.readouterr().err
    assert said.count("one kind") == LOG_LINES_PER_S + 2
    assert said.count("what a developer asked for") == LOG_LINES_PER_S + 7
    assert "another kind" in said
    assert said.splitlines()[-2:] == ["7 more like this: one kind %d", "one kind 100"]


async def test_how_many_more_there_were_is_told_when_nobody_says_anything_further(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_KINDS_COUNTED_S", 0.05)
    caplog.set_level("INFO")
    logger = logger_to(FewOfAKind(time.monotonic))
    sparing = Sparing(logging.getLogger("test"), 2, time.monotonic)
    for number in range(LOG_LINES_PER_S + 3):
        logger.info("one kind %d", number)
        sparing.info("another %d", number)
        sparing.warning("and a third")
    caplog.clear()
    async with asyncio.timeout(5):
        while len(caplog.records) < 2 or "more" not in capsys.readouterr().err:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    more = LOG_LINES_PER_S + 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"{more} more like this: another %d"),
        ("WARNING", f"{more} more like this: and a third"),
    ]
    await asyncio.sleep(0.1)
    assert len(caplog.records) == 2, "it is told once"


async def test_what_a_thread_says_too_often_is_told_with_its_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    logger = logger_to(FewOfAKind(lambda: now[0]))

    def say() -> None:
        for number in range(LOG_LINES_PER_S + 7):
            logger.info("one kind %d", number)

    await asyncio.to_thread(say)
    now[0] = 1.0
    logger.info("another kind")
    assert capsys.readouterr().err.splitlines()[-2:] == ["7 more like this: one kind %d", "another kind"]


def test_what_is_audited_is_said_each_time_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    handler = FewOfAKind(lambda: 0.0)
    handler.setFormatter(logs._OneLine(logs.TEXT))
    logger = logging.Logger(AUDIT)
    logger.addHandler(handler)
    path = "/api/v5/" + "x" * 1000
    for _ in range(LOG_LINES_PER_S + 1):
        logger.info("DELETE %r", path)
    assert capsys.readouterr().err.count(path) == LOG_LINES_PER_S + 1


def test_what_a_callback_cant_raise_is_one_line_and_not_often() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNRAISABLE], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    assert len(done.stderr.splitlines()) == 1
    assert "UnicodeDecodeError" in done.stderr


UNRAISABLE = """
from flockmq import logs
logs.configure("text", "info")
class Broken:
    def __del__(self):
        b"\\xff".decode()
for _ in range(3):
    Broken()
"""
