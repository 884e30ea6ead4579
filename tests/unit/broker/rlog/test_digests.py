"""Who is wrong when digests differ."""

import pytest

from flockmq.rlog.digests import CheckpointDigests, Comparison, compare_digests
from flockmq.rlog.entry import StreamId

EARLY, LATE = StreamId(1, 5), StreamId(1, 9)
GOOD, BAD = (1, 2), (1, 3)


@pytest.mark.parametrize(
    ("votes", "others", "cores", "kind"),
    [
        pytest.param(True, [], 1, "right", id="an only core"),
        pytest.param(False, [GOOD], 1, "right", id="a replicant and the only core"),
        pytest.param(False, [BAD], 1, "wrong", id="the only core is right"),
        pytest.param(True, [GOOD, BAD], 3, "right", id="two of three"),
        pytest.param(True, [BAD, BAD], 3, "wrong", id="two against one"),
        pytest.param(True, [BAD], 3, None, id="the third has said nothing yet"),
        pytest.param(True, [BAD, (0, 0)], 3, "disputed", id="three opinions"),
        pytest.param(True, [BAD], 2, "disputed", id="one against one"),
        pytest.param(False, [GOOD], 3, None, id="no majority has said anything"),
        pytest.param(True, [], 3, None, id="nobody else has said anything"),
    ],
)
def test_judge(votes: bool, others: list[tuple[int, ...]], cores: int, kind: str | None) -> None:
    comparison = compare_digests(
        {EARLY: BAD, LATE: GOOD}, votes, [CheckpointDigests(LATE, digests) for digests in others], cores
    )
    assert comparison == (None if kind is None else Comparison(LATE, kind))  # type: ignore[arg-type]


def test_what_is_said_of_other_places_says_nothing() -> None:
    others = [CheckpointDigests(StreamId(1, 8), BAD), CheckpointDigests(StreamId(2, 1), BAD)]
    assert compare_digests({EARLY: GOOD, LATE: GOOD}, False, others, 3) is None


def test_an_earlier_place_is_judged_while_the_latest_says_nothing() -> None:
    assert compare_digests({EARLY: GOOD, LATE: GOOD}, True, [CheckpointDigests(EARLY, GOOD)], 3) == Comparison(
        EARLY, "right"
    )
