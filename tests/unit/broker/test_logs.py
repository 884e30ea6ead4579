"""What can be brought about from outside doesn't fill the log."""

import logging
import os
import subprocess
import sys

import pytest

from flockmq.bounds import RETRIED_QUIETLY_MAX_S
from flockmq.logs import Retrying, Sparing


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
    assert [record.getMessage() for record in caplog.records] == ["line 0", "line 1", "3 more like this", "later"]


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
