"""The cluster's time is what the clocks of most cores say, and no clock that is wrong moves it."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.clock import Clock
from flockmq.membership.cluster_time import ClusterTime

NOW_S = 1_700_000_000.0
HOUR_S = 3600.0
CORES = ("core-1", "core-2", "core-3")


class Machine:
    """A node, its wall clock and the monotonic clock, which began at another moment than that of the others."""

    def __init__(self, world: World, name: str, wrong_s: float) -> None:
        self.name = name
        self.world = world
        self.wrong_s = wrong_s
        self.is_up = True
        self.boot_s = 100.0 * len(world.machines)
        self.time = self._started()

    def _started(self) -> ClusterTime:
        clock = Clock(lambda: self.boot_s + self.world.passed_s, lambda: NOW_S + self.world.passed_s + self.wrong_s)
        return ClusterTime(clock, self.name.startswith("core"))

    def start(self) -> None:
        """A new process."""
        self.is_up = True
        self.time = self._started()

    @property
    def off_s(self) -> float:
        """By how much what it takes for the time is ahead of what it is."""
        return self.time.now_s() - NOW_S - self.world.passed_s


class World:
    """`wrong_s`: how wrong the clock of each machine is; cores, of `cores` in all, and replicants."""

    def __init__(self, cores: int = 3, **wrong_s: float) -> None:
        self.passed_s = 0.0
        self.cores = cores
        self.machines: dict[str, Machine] = {}
        for name, seconds in wrong_s.items():
            self.machines[name.replace("_", "-")] = Machine(self, name.replace("_", "-"), seconds)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def go_on(self, seconds: float, apart: str = "") -> None:
        """Everybody hears everybody, but nobody hears `apart`, nor does that hear anybody."""
        until_s = self.passed_s + seconds
        while self.passed_s < until_s:
            self.passed_s += bounds.LINK_LOOK_S
            for machine in self._up():
                for core in [other for other in self._up() if other.name in CORES and other is not machine]:
                    if apart not in (machine.name, core.name):
                        machine.time.received(f"{core.name}@1", core.time.reading())
            for machine in self._up():
                machine.time.look(self.cores)

    def stop(self, name: str) -> None:
        self[name].is_up = False
        for machine in self._up():
            machine.time.lost(f"{name}@1")

    def _up(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_up]


def test_all_nodes_have_the_time_of_most_cores() -> None:
    world = World(core_1=0.0, core_2=2 * HOUR_S, core_3=0.5, replicant_1=-HOUR_S)
    world.go_on(1.0)
    assert [round(machine.off_s, 1) for machine in world.machines.values()] == [0.2, 0.2, 0.2, 0.2]
    assert round(world["replicant-1"].time.off_s) == -HOUR_S


def test_one_clock_that_jumps_moves_nothing() -> None:
    world = World(core_1=0.0, core_2=0.0, core_3=0.0, replicant_1=0.0)
    world.go_on(1.0)
    for name in world.machines:
        world[name].wrong_s = 2 * HOUR_S
        world.go_on(60.0)
        assert all(abs(machine.off_s) < 0.01 for machine in world.machines.values())
        world[name].wrong_s = 0.0
        world.go_on(1.0)


def test_a_node_knows_the_time_from_the_first_core_that_it_hears() -> None:
    world = World(core_1=0.0, core_2=-2 * HOUR_S, core_3=0.0)
    world.go_on(1.0)
    world.stop("core-1")
    world.stop("core-2")
    world["core-2"].start()
    world.go_on(bounds.LINK_LOOK_S)
    assert abs(world["core-2"].off_s) < 0.01


def test_the_time_goes_on_while_the_clocks_that_are_left_do_not_agree() -> None:
    world = World(core_1=0.0, core_2=2 * HOUR_S, core_3=0.0)
    world.go_on(1.0)
    world.stop("core-1")
    world.go_on(HOUR_S / 10)
    assert [round(world[name].off_s, 2) for name in ("core-2", "core-3")] == [0.0, 0.0]


def test_who_hears_nobody_has_the_time_of_before() -> None:
    world = World(core_1=0.0, core_2=0.0, core_3=0.0)
    world.go_on(1.0)
    for other in ("core-1", "core-3"):
        world["core-2"].time.lost(f"{other}@1")
    world["core-2"].wrong_s = 2 * HOUR_S
    world.go_on(60.0, apart="core-2")
    assert abs(world["core-2"].off_s) < 0.01


def test_the_time_is_set_when_most_clocks_are() -> None:
    world = World(core_1=HOUR_S, core_2=HOUR_S, core_3=HOUR_S, replicant_1=0.0)
    world.go_on(60.0)
    assert round(world["core-1"].off_s) == HOUR_S
    for core in CORES:
        world[core].wrong_s = 0.0
    world.go_on(bounds.CLOCK_JUMP_AFTER_S / 2)
    assert round(world["core-1"].off_s) == HOUR_S
    world.go_on(bounds.CLOCK_JUMP_AFTER_S)
    assert all(abs(machine.off_s) < 0.01 for machine in world.machines.values())
    assert world["replicant-1"].time.jumps == 1


def test_what_was_said_while_a_node_stood_still_does_not_set_its_time() -> None:
    world = World(core_1=0.0, core_2=0.0, core_3=0.0)
    world.go_on(1.0)
    said = [(core, world[core].time.reading()) for core in ("core-1", "core-3")]
    world.passed_s += 60.0
    for core, reading in said:
        world["core-2"].time.received(f"{core}@1", reading)
    world["core-2"].time.look(world.cores)
    world["core-2"].time.look(world.cores)
    assert abs(world["core-2"].off_s) < 0.01


def test_small_differences_are_made_good_slowly_and_the_time_never_goes_back() -> None:
    world = World(core_1=0.0, core_2=0.0, core_3=0.0)
    world.go_on(1.0)
    for core in CORES:
        world[core].wrong_s = -1.0
    before_s = world["core-1"].time.now_s()
    for _ in range(100):
        world.go_on(bounds.LINK_LOOK_S)
        assert world["core-1"].time.now_s() > before_s
        before_s = world["core-1"].time.now_s()
    assert -0.1 < world["core-1"].off_s < -0.01
    world.go_on(2.0 / bounds.CLOCK_SLEW_S)
    assert world["core-1"].off_s == pytest.approx(-1.0)


def test_the_slowest_clock_counts_where_two_differ_and_nobody_knows_the_time() -> None:
    world = World(core_1=0.0, core_2=2 * HOUR_S)
    world.go_on(1.0)
    assert all(abs(machine.off_s) < 0.01 for machine in world.machines.values())


def test_two_cores_of_which_one_clock_is_set_have_the_time_of_before() -> None:
    world = World(cores=2, core_1=0.0, core_2=0.0)
    world.go_on(1.0)
    world["core-1"].wrong_s = 2 * HOUR_S
    world.go_on(60.0)
    assert all(abs(machine.off_s) < 0.01 for machine in world.machines.values())


def test_the_only_core_has_its_own_clock() -> None:
    world = World(cores=1, core_1=0.0, replicant_1=HOUR_S)
    world.go_on(1.0)
    world["core-1"].wrong_s = 2 * HOUR_S
    world.go_on(2 * bounds.CLOCK_JUMP_AFTER_S)
    assert [round(machine.off_s) for machine in world.machines.values()] == [2 * HOUR_S, 2 * HOUR_S]


def test_a_node_that_is_told_nothing_goes_by_its_own_clock() -> None:
    """All others are of the first release."""
    world = World(core_1=0.0, replicant_1=0.0)
    world.go_on(1.0, apart="core-1")
    for machine in world.machines.values():
        machine.wrong_s = HOUR_S
    world.go_on(1.0, apart="core-1")
    assert [round(machine.off_s) for machine in world.machines.values()] == [HOUR_S, HOUR_S]


def test_the_clock_that_is_handed_out_is_this_time() -> None:
    world = World(cores=1, core_1=0.0, replicant_1=HOUR_S)
    world.go_on(1.0)
    clock = world["replicant-1"].time.clock
    assert clock.wall() == world["replicant-1"].time.now_s()
    assert clock.monotonic() == world["replicant-1"].boot_s + world.passed_s
