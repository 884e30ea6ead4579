"""What whoever runs the cluster saw is told as it is."""

from __future__ import annotations

import pytest

from judges.judge import ALARM, BOUND, NO_PROGRESS, OVERSTEPPED, UNWELL, judge
from load.history import AlarmMissing, AnyEvent, BoundPassed, Overstepped, Played, Unwell


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (AlarmMissing(1.0, "Redis lost its data"), ALARM),
        (Unwell(1.0, "a", "Traceback"), UNWELL),
        (BoundPassed(1.0, "a", "mqueue", 1001.0, 1000.0), BOUND),
        (Overstepped(1.0, "ann", 1, "a", "packet id 7, which is in use"), OVERSTEPPED),
        (Played(1.0, "locks", 0), NO_PROGRESS),
    ],
)
def test_what_was_seen_is_told(event: AnyEvent, kind: str) -> None:
    assert judge([event]).by_kind() == {kind: 1}


def test_a_feature_that_goes_on_is_no_finding() -> None:
    assert judge([Played(1.0, "locks", 1)]).findings == []
