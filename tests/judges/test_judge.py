"""The judges together: they pass what is right, and find each message that is lost, doubled or out of order."""

from __future__ import annotations

import inspect
import random
import re
import sys
import time
from typing import Final

import pytest

from judges import judge as checker
from judges.judge import JUDGES, judge
from judges.made_up import a_good_history
from load.history import Delivered, Message

MANY: Final = 4_000
MANY_MAX_S: Final = 8.0
"""Of a machine that has other things to do; a loop within a loop would take minutes."""


def test_each_kind_of_finding_is_named_with_all_others() -> None:
    """For each of them a seeded bug is asked for."""
    sources = [inspect.getsource(sys.modules[each.__module__]) for each in JUDGES.values()]
    kinds = {kind for source in sources for kind in re.findall(r"Finding\(\s*([A-Z_]+)", source)}
    assert len(kinds) > len(JUDGES)
    assert kinds - set(checker.__all__) == set()


@pytest.mark.parametrize("seed", range(20))
def test_a_good_history_has_no_findings(seed: int) -> None:
    verdict = judge(a_good_history(seed))
    assert verdict.findings == []
    assert verdict.acknowledged == 30


@pytest.mark.parametrize("seed", range(20))
def test_in_a_good_history_any_change_for_the_worse_is_found(seed: int) -> None:
    events, rng = a_good_history(seed), random.Random(seed)
    came = [event for event in events if isinstance(event, Delivered)]
    times = [Message(event.publisher, event.number) for event in came]
    once = [event for event in came if times.count(Message(event.publisher, event.number)) == 1]

    lost = rng.choice(once)
    assert judge([event for event in events if event is not lost]).count(checker.LOST) == 1

    twice = rng.choice([event for event in once if event.qos == 2])
    assert judge([*events, twice]).count(checker.DUPLICATED) == 1

    late = rng.choice([event for event in once if any(event.qos == o.qos and o.number > event.number for o in once)])
    moved = [event for event in events if event is not late]
    assert judge([*moved, late]).count(checker.REORDERED) == 1


def test_nothing_is_nothing_to_find() -> None:
    assert judge([]).findings == []
    assert all(name for name in JUDGES)


def test_findings_come_in_the_order_of_time() -> None:
    events = a_good_history(1)
    worse = [event for event in events if not isinstance(event, Delivered)]
    at = [finding.at for finding in judge(worse).findings]
    assert at == sorted(at)
    assert len(at) == 30


def test_a_long_history_is_judged_in_little_time() -> None:
    events = a_good_history(1, MANY)
    kept = [event for event in events if not isinstance(event, Delivered) or event.number % 2]
    began = time.process_time()
    verdict = judge(kept)
    assert time.process_time() - began < MANY_MAX_S
    assert verdict.count(checker.LOST) == MANY // 2
