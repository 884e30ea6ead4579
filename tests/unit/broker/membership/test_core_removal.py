"""Which core may go, and why another one may not."""

from __future__ import annotations

import pytest

from flockmq.membership.core_removal import StayingCore, obstacle


def cores(*counts: int | None, unready: tuple[int, ...] = ()) -> list[StayingCore]:
    return [StayingCore(f"core-{number}", number not in unready, count) for number, count in enumerate(counts)]


@pytest.mark.parametrize("counts", [(2, 2), (0, 0), (1, 2), (1,), (3, 3, 3, 4)])
def test_a_core_goes_when_those_that_stay_are_ready_and_count_no_more_than_they_are(counts: tuple[int, ...]) -> None:
    assert obstacle("core-9", cores(*counts)) == ""


def test_the_last_core_stays() -> None:
    assert "core-9 is the only core" in obstacle("core-9", [])


def test_who_counts_more_cores_than_stay_is_told_the_number() -> None:
    why = obstacle("core-9", cores(3, 2))
    assert "cluster.cores is 3 on core-0: set it to 2 or fewer there" in why
    assert "cluster.cores is 2 on core-0: set it to 1 or fewer there" in obstacle("core-9", cores(2))


@pytest.mark.parametrize(("counts", "unready"), [((3, 3), (1,)), ((3,), ()), ((2, 2, 2), (0, 2)), ((0, 0, 0), (0, 1))])
def test_no_core_goes_where_a_majority_would_be_lost(counts: tuple[int, ...], unready: tuple[int, ...]) -> None:
    assert "a majority would be lost" in obstacle("core-9", cores(*counts, unready=unready))


def test_nobody_is_told_to_count_fewer_where_a_majority_is_dead() -> None:
    why = "a majority would be lost: of 3 cores only core-0 would be ready and reach Redis"
    assert obstacle("core-9", cores(3)) == why
    assert "of 2 cores none would be ready" in obstacle("core-9", cores(0, 0, unready=(0, 1)))


def test_all_that_stay_must_be_ready() -> None:
    why = obstacle("core-9", cores(3, 3, 3, unready=(1,)))
    assert why.startswith("core-1 isn't ready, and core-9 may be all that holds the tables")


def test_a_core_that_does_not_say_its_number_keeps_the_others() -> None:
    assert obstacle("core-9", cores(2, None)).startswith("core-1 doesn't say what its cluster.cores is")
