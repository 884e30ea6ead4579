"""What happens when, before anything does."""

from __future__ import annotations

import pytest

from faults import schedule

CORES, REPLICANTS = ("core-1", "core-2", "core-3"), ("replicant-1", "replicant-2", "replicant-3")


@pytest.mark.parametrize("seed", range(10))
def test_a_schedule_is_that_of_its_seed_and_as_long_as_asked_for(seed: int) -> None:
    steps = schedule.plan(seed, 60, CORES, REPLICANTS)
    assert steps == schedule.plan(seed, 60, CORES, REPLICANTS)
    assert steps != schedule.plan(seed + 1, 60, CORES, REPLICANTS)
    assert sum(len(step.faults) for step in steps) == 60
    for step in steps:
        touched = [target for fault in step.faults for target in fault.targets]
        assert len(touched) == len(set(touched))
        if any(schedule.KINDS[fault.kind].alone for fault in step.faults):
            assert len(step.faults) == 1
            assert step.pause_s >= schedule.WRITTEN_ANEW_S


def test_every_kind_of_fault_comes_in_a_long_schedule() -> None:
    steps = schedule.plan(1, 1000, CORES, REPLICANTS)
    assert {fault.kind for step in steps for fault in step.faults} == set(schedule.KINDS)
    assert any(len(step.faults) > 1 for step in steps)


@pytest.mark.parametrize("script", schedule.SCRIPTS)
def test_a_script_names_hosts_that_a_lab_has(script: str) -> None:
    hosts = {*CORES, *REPLICANTS, schedule.REDIS}
    for step in schedule.SCRIPTS[script]:
        for fault in step.faults:
            assert fault.kind in schedule.KINDS
            assert len(fault.targets) == len(schedule.KINDS[fault.kind].roles)
            assert hosts.issuperset(fault.targets)
