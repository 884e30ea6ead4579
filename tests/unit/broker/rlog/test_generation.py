"""Which generation comes next, for each state of Redis that a core can meet."""

import pytest

from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.generation import (
    UNREADABLE,
    Life,
    Report,
    Seal,
    Seed,
    StoredLog,
    is_settled,
    next_generation,
    plan,
    rank,
    reached_by_majority,
    unreadable,
)

NOW, BEFORE = "run-now", "run-before"
A, B, C = (Report(name, StreamId(3, position), 3) for name, position in (("a", 9), ("b", 7), ("c", 9)))
BLANK = Report("b", START, 0)
BROKEN = Report("c", UNREADABLE, 0)


@pytest.mark.parametrize(
    ("life", "last", "reports", "step"),
    [
        pytest.param(None, START, [BLANK, BLANK], Seal(Life(4, NOW), START), id="the first log ever"),
        pytest.param(Life(3, BEFORE), StreamId(3, 9), [A, B], Seal(Life(4, NOW), A.position), id="a plain restart"),
        pytest.param(Life(3, BEFORE), StreamId(3, 8), [A, B], Seed(Life(4, NOW), A.position), id="lost writes"),
        pytest.param(None, START, [BLANK, A], Seed(Life(4, NOW), A.position), id="an empty Redis"),
        pytest.param(None, START, [BROKEN, A], Seed(Life(4, NOW), A.position), id="a snapshot is broken, one is good"),
        pytest.param(
            Life(3, BEFORE), StreamId(3, 9), [BROKEN, BLANK], Seal(Life(4, NOW), UNREADABLE), id="the log is there"
        ),
        pytest.param(Life(1, NOW), StreamId(1, 4), [A], Seed(Life(4, NOW), A.position), id="another log"),
        pytest.param(None, StreamId(5, 4), [A], Seed(Life(4, NOW), A.position), id="a log that no one sealed"),
    ],
)
def test_plan(life: Life | None, last: StreamId, reports: list[Report], step: Seal | Seed) -> None:
    assert plan(StoredLog(NOW, life, last), 4, reports) == step


@pytest.mark.parametrize(
    ("life", "last", "mine", "settled"),
    [
        pytest.param(Life(3, NOW), StreamId(3, 9), B, True, id="nothing happened"),
        pytest.param(Life(3, NOW), StreamId(3, 9), BLANK, True, id="a blank core joins"),
        pytest.param(Life(3, NOW), StreamId(3, 8), A, False, id="it ends before what this core has"),
        pytest.param(Life(3, BEFORE), StreamId(3, 9), A, False, id="another life"),
        pytest.param(None, StreamId(3, 9), BLANK, False, id="no life"),
        pytest.param(Life(3, NOW), StreamId(3, 9), A._replace(promised=4), False, id="a later one is promised"),
    ],
)
def test_is_settled(life: Life | None, last: StreamId, mine: Report, settled: bool) -> None:
    assert is_settled(StoredLog(NOW, life, last), mine) == settled


@pytest.mark.parametrize(
    ("last", "reports", "cores"),
    [
        pytest.param(START, [BLANK, BROKEN], ["c"], id="nobody has it"),
        pytest.param(START, [BROKEN, A], [], id="another core has it"),
        pytest.param(StreamId(3, 9), [BLANK, BROKEN], [], id="Redis has it"),
        pytest.param(START, [BLANK, BLANK], [], id="there never was one"),
    ],
)
def test_an_empty_shard_isnt_begun_where_a_snapshot_cant_be_read(
    last: StreamId, reports: list[Report], cores: list[str]
) -> None:
    found = StoredLog(NOW, None if last == START else Life(3, BEFORE), last)
    assert unreadable(plan(found, 4, reports), reports) == cores


def test_who_cant_read_its_snapshot_goes_on_with_the_log() -> None:
    assert is_settled(StoredLog(NOW, Life(1, NOW), StreamId(1, 0)), BROKEN)
    assert not is_settled(StoredLog(NOW, None, START), BROKEN)


def test_a_generation_is_higher_than_all_that_anybody_heard_of() -> None:
    found = StoredLog(NOW, Life(3, BEFORE), StreamId(2, 9))
    assert next_generation(found, [BLANK]) == 4
    assert next_generation(found, [A, C._replace(promised=7)]) == 8
    assert next_generation(StoredLog(NOW, None, START), [A._replace(position=StreamId(9, 1))]) == 10


def test_whoever_may_seal_takes_turns_and_only_who_stands_at_the_base_seeds() -> None:
    life, reports = Life(4, NOW), [C, B, A]
    assert [rank(name, Seal(life, A.position), reports) for name in "abc"] == [0, 1, 2]
    assert [rank(name, Seed(life, A.position), reports) for name in "abc"] == [0, None, 1]


@pytest.mark.parametrize(
    ("sequences", "cores", "reached"),
    [([4], 1, 4), ([4, 9], 2, 4), ([4, 9, 7], 3, 7), ([9], 3, 0), ([9, 8], 3, 8), ([9, 8], 4, 0), ([], 1, 0)],
)
def test_what_a_majority_has_reached(sequences: list[int], cores: int, reached: int) -> None:
    positions = [StreamId(1, sequence) for sequence in sequences]
    assert reached_by_majority(positions, cores) == (StreamId(1, reached) if reached else START)


@pytest.mark.parametrize(
    ("positions", "reached"),
    [
        ([StreamId(1, 200), StreamId(2, 50)], START),
        ([StreamId(2, 1), StreamId(1, 200), StreamId(1, 149)], StreamId(1, 149)),
        ([StreamId(2, 1), StreamId(2, 7), StreamId(1, 200)], StreamId(2, 1)),
    ],
)
def test_who_is_in_a_later_generation_may_have_left_places_of_an_earlier_one_behind(
    positions: list[StreamId], reached: StreamId
) -> None:
    assert reached_by_majority(positions, 3) == reached


def test_a_life_is_read_back() -> None:
    assert Life.parse(str(Life(12, NOW))) == Life(12, NOW)
    assert Life.parse("") is None


@pytest.mark.parametrize("text", ["12", "x:run", "12:", ":run"])
def test_a_life_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(LogCorrupt, match="expected generation:run_id"):
        Life.parse(text)
