"""What happens when, before anything does."""

from __future__ import annotations

import pytest

from faults import schedule

SHAPES = ("server", "sentinel", "cluster")
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


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_redis_has_faults_of_its_own_hosts(shape: str) -> None:
    redis = [schedule.REDIS] if shape == "server" else ["redis-1", "redis-2", "redis-3"]
    roles = {"server": (schedule.REDIS,), "sentinel": (schedule.PRIMARY, schedule.REPLICA), "cluster": redis}[shape]
    steps = schedule.plan(1, 1500, CORES, REPLICANTS, schedule.mix_for(shape), redis=redis)
    targets = {target for step in steps for fault in step.faults for target in fault.targets}
    assert schedule.kinds_of(steps) == sorted(schedule.mix_for(shape))
    assert targets == {*CORES, *REPLICANTS, schedule.LEADER, *roles}


def test_two_faults_of_a_replicated_redis_never_overlap_nor_follow_at_once() -> None:
    for step in schedule.plan(1, 500, CORES, REPLICANTS, tuple(schedule.SENTINEL_KINDS)):
        touched = [target for fault in step.faults for target in fault.targets if target not in (*CORES, *REPLICANTS)]
        assert len(touched) == 1
        assert step.calm


def test_what_takes_long_comes_only_where_it_is_asked_for() -> None:
    for shape in SHAPES:
        rare = set(schedule.kinds_for(shape)) - set(schedule.mix_for(shape))
        long = {kind for kind in schedule.kinds_for(shape) if kind.endswith(("10s", "60s"))}
        assert rare == {*long, "scale cores", "upgrade core", "upgrade replicant"}
    steps = schedule.plan(1, 30, CORES, REPLICANTS, ("cut core redis 60s", "isolate core 60s"))
    assert {fault.hold_s for step in steps for fault in step.faults} == {60.0}


def test_scaling_touches_every_core() -> None:
    (step,) = schedule.plan(1, 1, CORES, REPLICANTS, ("scale cores",))
    assert step.faults[0].targets == CORES
    assert step.faults[0].amount == 5.0


@pytest.mark.parametrize("script", schedule.SCRIPTS)
def test_a_script_names_hosts_that_a_lab_has(script: str) -> None:
    hosts = {*CORES, *REPLICANTS, schedule.REDIS, schedule.PRIMARY, schedule.REPLICA}
    steps = schedule.SCRIPTS[script]
    assert any(schedule.kinds_for(shape).keys() >= set(schedule.kinds_of(steps)) for shape in SHAPES)
    for step in steps:
        for fault in step.faults:
            assert len(fault.targets) == len(schedule.ALL_KINDS[fault.kind].roles)
            assert hosts.issuperset(fault.targets)


def test_what_a_machine_can_not_do_is_left_out() -> None:
    kinds = set(schedule.kinds_of(schedule.MANY_KINDS))
    left = schedule.only(kinds - {"clock core"}, schedule.MANY_KINDS)
    assert set(schedule.kinds_of(left)) == kinds - {"clock core"}
    assert len(left) == len(schedule.MANY_KINDS)
