"""What is known is excused where it is known, and nowhere else."""

from __future__ import annotations

from faults.schedule import Planned, Step
from judges.judge import DUPLICATED, LOST, SHARED_TWICE, Finding
from simulation.case import Case
from simulation.cluster import Shape
from simulation.known import is_known


def case(profile: str, kind: str) -> Case:
    return Case(1, profile, Shape(), (Step((Planned(kind, ("a",), 1.0),), 1.0),))


def test_what_is_known_is_excused_where_it_is_known() -> None:
    assert is_known(case("shared", "stop replicant"), Finding(SHARED_TWICE, 1.0, ""))
    assert is_known(case("overflow", "stall redis"), Finding(LOST, 1.0, ""))


def test_nothing_else_is() -> None:
    assert not is_known(case("shared", "kill core"), Finding(SHARED_TWICE, 1.0, ""))
    assert not is_known(case("shared", "stop replicant"), Finding(DUPLICATED, 1.0, ""))
    assert not is_known(case("base", "stall redis"), Finding(LOST, 1.0, ""))
