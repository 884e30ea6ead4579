"""When an embedded Valkey that ended is started again, and what is said of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from flockmq.bounds import (
    EMBEDDED_RETRY_MAX_S,
    EMBEDDED_RETRY_MIN_S,
    EMBEDDED_ROOM_MIN_BYTES,
    EMBEDDED_STEADY_S,
    UNFIT_AFTER_S,
)
from flockmq.redis.embedded import LOG_PREFIX, exit_report, wait_s

FOLDER = Path("/data/valkey")
PLENTY = EMBEDDED_ROOM_MIN_BYTES


def test_it_is_started_again_at_once_then_twice_as_late_each_time_up_to_a_bound() -> None:
    waits = [wait_s(tries) for tries in range(100)]
    assert waits[0] == EMBEDDED_RETRY_MIN_S
    assert all(after == min(2 * before, EMBEDDED_RETRY_MAX_S) for before, after in pairwise(waits))
    assert waits[-1] == EMBEDDED_RETRY_MAX_S


def test_one_that_comes_back_at_once_is_never_why_a_node_is_not_ready() -> None:
    assert 2 * (EMBEDDED_RETRY_MIN_S + EMBEDDED_STEADY_S) < UNFIT_AFTER_S


def test_how_it_ended_is_said_with_its_last_words() -> None:
    assert exit_report(1, "Bad file format", FOLDER, PLENTY) == "it ended with exit code 1, saying 'Bad file format'"
    assert exit_report(-6, "", FOLDER, PLENTY) == "it was killed by signal 6"


def test_who_was_killed_may_have_been_so_for_memory() -> None:
    assert exit_report(-9, "", FOLDER, PLENTY) == "it was killed by signal 9: by hand, or because memory was short"


def test_a_full_disk_is_said_whether_it_had_room_to_say_so_or_not() -> None:
    advice = "free room at /data/valkey"
    assert exit_report(1, "", FOLDER, 0) == f"it ended with exit code 1: {advice}"
    words = "Error writing to the AOF file: No space left on device"
    assert exit_report(1, words, FOLDER, PLENTY) == f"it ended with exit code 1, saying {words!r}: {advice}"


def test_its_words_are_without_who_says_them_and_when() -> None:
    assert LOG_PREFIX.sub("", "71:M 09 Nov 2026 12:00:00.123 # a - b * c") == "a - b * c"
    assert LOG_PREFIX.sub("", "*** FATAL CONFIG FILE ERROR ***") == "*** FATAL CONFIG FILE ERROR ***"
