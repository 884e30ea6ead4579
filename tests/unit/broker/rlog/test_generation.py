"""Which generation comes next, for each state of Redis that a core can meet."""

import pytest

from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.generation import GoOn, Life, Seal, Seed, plan

NOW, BEFORE = "run-now", "run-before"


@pytest.mark.parametrize(
    ("stored", "last", "known", "step"),
    [
        pytest.param(None, START, START, Seal(Life(1, NOW), START), id="the first log ever"),
        pytest.param(Life(3, NOW), StreamId(3, 9), StreamId(3, 7), GoOn(Life(3, NOW)), id="nothing happened"),
        pytest.param(Life(3, NOW), StreamId(3, 9), START, GoOn(Life(3, NOW)), id="a blank core joins"),
        pytest.param(
            Life(3, BEFORE), StreamId(3, 9), StreamId(3, 9), Seal(Life(4, NOW), StreamId(3, 9)), id="a plain restart"
        ),
        pytest.param(
            Life(3, BEFORE), StreamId(3, 8), StreamId(3, 9), Seed(Life(4, NOW), StreamId(3, 9)), id="lost writes"
        ),
        pytest.param(None, START, StreamId(3, 9), Seed(Life(4, NOW), StreamId(3, 9)), id="an empty Redis"),
        pytest.param(
            Life(1, NOW),
            StreamId(1, 4),
            StreamId(3, 9),
            Seed(Life(4, NOW), StreamId(3, 9)),
            id="a blank core was first",
        ),
        pytest.param(
            None, StreamId(5, 4), StreamId(3, 9), Seed(Life(6, NOW), StreamId(3, 9)), id="a log that no one sealed"
        ),
    ],
)
def test_plan(stored: Life | None, last: StreamId, known: StreamId, step: GoOn | Seal | Seed) -> None:
    assert plan(stored, NOW, last, known) == step


def test_a_life_is_read_back() -> None:
    assert Life.parse(str(Life(12, NOW))) == Life(12, NOW)
    assert Life.parse("") is None


@pytest.mark.parametrize("text", ["12", "x:run", "12:", ":run"])
def test_a_life_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(LogCorrupt, match="expected generation:run_id"):
        Life.parse(text)
