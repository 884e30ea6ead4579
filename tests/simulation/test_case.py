"""What a seed decides, and that a run is that of its case."""

from __future__ import annotations

import logging

import pytest

from faults import schedule
from load.history import Acknowledged, AnyEvent, Published, Unwell
from load.profiles import BASE, FEATURES
from load.profiles import PROFILES as LOADS
from simulation.case import DURABLE, FAULTS, FAULTS_LAST_S, Defects, Outcome, case_of, durable_messages, lasts_s
from simulation.profiles import PROFILES
from simulation.run import outcomes, started
from simulation.shrink import faults_of, keeping

SEEDS = range(1, 601)


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_seed_has_one_case_and_another_seed_has_another() -> None:
    cases = [case_of(seed) for seed in SEEDS]
    assert cases == [case_of(seed) for seed in SEEDS]
    assert len({case.steps for case in cases}) == len(SEEDS)


def test_a_case_has_two_faults_or_more_and_time_to_play() -> None:
    for case in map(case_of, SEEDS):
        assert FAULTS[0] <= len(faults_of(case)) <= FAULTS[1]
        assert lasts_s(case.steps) >= FAULTS_LAST_S - 1e-9
    assert FAULTS[0] >= 2


def test_every_profile_and_every_kind_of_fault_comes_up() -> None:
    cases = [case_of(seed) for seed in SEEDS]
    assert {case.profile for case in cases} == set(PROFILES)
    assert {fault.kind for case in cases for fault in faults_of(case)} >= set(schedule.KINDS)
    assert {case.shape for case in cases} == {shape for profile in PROFILES.values() for shape in profile.shapes}


def test_each_feature_of_a_load_has_a_profile_beside_the_one_that_has_nearly_all() -> None:
    loads = [LOADS[profile.load] for name, profile in PROFILES.items() if name != "upgraded"]
    assert {feature for load in loads for feature in load} == {BASE, *FEATURES}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_may_be_asked_for_and_its_faults_are_its_own(profile: str) -> None:
    for seed in SEEDS:
        case = case_of(seed, profile)
        assert case.profile == profile
        assert case.shape in PROFILES[profile].shapes
        assert {fault.kind for fault in faults_of(case)} <= set(PROFILES[profile].kinds)
    assert {fault.kind for fault in faults_of(case_of(1, profile, ("kill core",)))} == {"kill core"}


def test_of_few_kinds_the_seed_chooses_which_and_these_give_the_same_case() -> None:
    chosen = [case_of(seed, few=2) for seed in SEEDS]
    assert all(len(case.kinds) == 2 for case in chosen)
    assert len({case.kinds for case in chosen}) > 1
    for case in chosen:
        assert {fault.kind for fault in faults_of(case)} <= set(case.kinds)
        assert case_of(case.seed, case.profile, case.kinds) == case


def test_the_profile_that_a_seed_chooses_may_be_named_and_changes_nothing() -> None:
    for case in map(case_of, SEEDS):
        assert case_of(case.seed, case.profile) == case


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_case_has_one_outcome_and_another_case_has_another() -> None:
    case = keeping(case_of(1, "base"), {0})
    same, other, again = (outcome for _, outcome in outcomes([case, keeping(case, ()), case], 1))
    assert isinstance(same, Outcome)
    assert isinstance(other, Outcome)
    assert isinstance(again, Outcome)
    assert same.trace == again.trace != other.trace
    assert (same.acknowledged, same.simulated_s, same.findings) == (
        again.acknowledged,
        again.simulated_s,
        again.findings,
    )
    assert same.faults == 1
    assert 0 < same.durable <= same.acknowledged


@pytest.mark.parametrize("profile", ["base", "scaled"])
def test_a_run_lasts_twelve_seconds_and_has_200_messages_that_are_durable(profile: str) -> None:
    ((_, outcome),) = outcomes([case_of(2, profile)], 1)
    assert isinstance(outcome, Outcome)
    assert outcome.simulated_s >= 12.0
    assert outcome.durable >= DURABLE >= 200


def test_what_a_node_logs_with_a_traceback_is_a_finding() -> None:
    cluster = started(case_of(1, "base").shape)
    log = logging.getLogger("flockmq.node")
    with Defects(cluster):
        log.error("all is well")
        try:
            raise ValueError("nobody foresaw it")
        except ValueError:
            log.exception("it goes on")
    log.error("not heard any more", exc_info=ValueError())
    (told,) = [event for event in cluster.events if isinstance(event, Unwell)]
    assert told.what == "it goes on: ValueError('nobody foresaw it')"


def test_durable_messages_are_those_of_qos_1_and_2_that_were_acknowledged() -> None:
    events: list[AnyEvent] = [
        Published(1.0, "c", 1, number, "t", qos, False) for number, qos in enumerate((0, 1, 2, 1))
    ]
    events += [Acknowledged(2.0, "c", number) for number in (0, 1, 2)]
    assert durable_messages(events) == 2
