"""What a majority of the cores has applied is never lost, whatever Redis loses and whoever settles when.

A model of three cores and one Redis takes the same decisions as generation_change.py, by the same functions, in steps
that come in any order: Redis restarts, goes back or is emptied between any two of them, cores are cut off from one
another and from Redis, crash and come back with what is on their disks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import Life, Report, Seed, StoredLog, is_settled, majority, next_generation, plan

NAMES = "abc"
one_name = st.sampled_from(NAMES)
sets_of_names = st.sets(st.sampled_from(NAMES))
Line = tuple[tuple[StreamId, int], ...]
"""Entries with unique contents."""


def position(line: Line) -> StreamId:
    return line[-1][0] if line else START


@dataclass
class Server:
    """One process of Redis, with what it holds of the log."""

    run_id: str
    life: Life | None = None
    line: Line = ()


@dataclass
class Core:
    name: str
    line: Line = ()
    disk: Line = ()
    promised: int = 0
    server: Server | None = None
    """Which its tail and its committer are connected to."""
    asked: tuple[StoredLog, int] | None = None
    """Between the two rounds: what it found, and the generation it asks for."""
    granted: list[Report] = field(default_factory=list)

    def report(self, generation: int) -> Report:
        granted = generation > self.promised
        if granted:
            self.promised = generation
        return Report(self.name, position(self.line), self.promised, granted)

    def found(self) -> StoredLog:
        assert self.server is not None
        return StoredLog(self.server.run_id, self.server.life, position(self.server.line))


class Generations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.servers = 1
        self.contents = 0
        self.server = Server("run-1")
        self.saved: tuple[Life | None, Line] = (None, ())
        self.cores = {name: Core(name) for name in NAMES}
        self.safe: set[tuple[StreamId, int]] = set()
        """What is on the disks of a majority, or in its memory: none of that may be missing in a later generation."""

    @rule(names=sets_of_names)
    def connect(self, names: set[str]) -> None:
        for name in names:
            self.cores[name].server = self.server

    @rule(name=one_name, others=sets_of_names)
    def first_round(self, name: str, others: set[str]) -> None:
        core = self.cores[name]
        if core.server is None or is_settled(core.found(), core.report(0)):
            return
        reports = [self.cores[other].report(0) for other in sorted(others | {name})]
        if len(reports) < majority(len(NAMES)):
            return
        found = core.found()
        core.asked, core.granted = (found, next_generation(found, reports)), []

    @rule(name=one_name, others=sets_of_names)
    def second_round(self, name: str, others: set[str]) -> None:
        core = self.cores[name]
        if core.asked is not None and not core.granted:
            reports = [self.cores[other].report(core.asked[1]) for other in sorted(others | {name})]
            core.granted = reports
            if sum(report.granted for report in reports) < majority(len(NAMES)):
                core.asked, core.granted = None, []

    @rule(name=one_name)
    def write(self, name: str) -> None:
        """What Redis does with the function call that the core makes when it has heard all."""
        core = self.cores[name]
        if core.asked is None or not core.granted or core.server is None:
            return
        (found, generation), reports = core.asked, core.granted
        core.asked, core.granted = None, []
        step, server = plan(found, generation, reports), core.server
        if server.life != found.life or server.run_id != found.run_id:
            return
        seal = (StreamId(generation, 0), self.new_content())
        if isinstance(step, Seed):
            if position(core.line) != step.base:
                return
            server.line = (*core.line, seal)
        elif position(server.line) >= step.base:
            server.line = (*server.line, seal)
        else:
            return
        server.life = step.life
        assert self.safe <= set(server.line), "the new generation lacks what a majority had"

    @rule(name=one_name, second=sets_of_names, also=sets_of_names)
    def settle(self, name: str, second: set[str], also: set[str]) -> None:
        """All of it, with nothing in between."""
        self.first_round(name, set(NAMES))
        self.second_round(name, second)
        self.write(name)
        for other in sorted(also):
            self.apply(other, 9)

    @rule(name=one_name, appliers=sets_of_names, entries=st.integers(1, 2))
    def grow(self, name: str, appliers: set[str], entries: int) -> None:
        """Appends through one core, which some of the cores apply at once."""
        core = self.cores[name]
        server = core.server
        if server is None or not is_settled(core.found(), core.report(0)):
            return
        for _ in range(entries):
            last = position(server.line)
            server.line = (*server.line, (last._replace(sequence=last.sequence + 1), self.new_content()))
        for applier in sorted(appliers):
            self.apply(applier, 9)

    @rule(name=one_name, entries=st.integers(1, 3))
    def apply(self, name: str, entries: int) -> None:
        core = self.cores[name]
        server = core.server
        if (
            server is None
            or position(server.line) < position(core.line)
            or position(server.line).generation < core.promised
        ):
            return
        if server.line[: len(core.line)] == core.line:
            core.line = server.line[: len(core.line) + entries]
        else:
            core.line = server.line  # a bootstrap
        self.safe |= self.held()

    @rule(name=one_name)
    def snapshot(self, name: str) -> None:
        self.cores[name].disk = self.cores[name].line

    @rule(name=one_name)
    def crash(self, name: str) -> None:
        core = self.cores[name]
        self.cores[name] = Core(name, core.disk, core.disk, core.promised)
        self.safe &= self.held()

    @rule()
    def save(self) -> None:
        self.saved = self.server.life, self.server.line

    @rule(what=st.sampled_from(["its data", "what was saved", "nothing"]), stays=sets_of_names)
    def redis_restarts(self, what: str, stays: set[str]) -> None:
        """Connections of `stays` are not noticed to be gone: the old one runs on, on the other side of a split."""
        self.servers += 1
        life, line = {
            "its data": (self.server.life, self.server.line),
            "what was saved": self.saved,
            "nothing": (None, ()),
        }[what]
        self.server = Server(f"run-{self.servers}", life, line)
        for name, core in self.cores.items():
            if name not in stays:
                core.server, core.asked, core.granted = self.server, None, []

    @invariant()
    def no_two_logs_share_an_id(self) -> None:
        seen: dict[StreamId, int] = {}
        for line in [core.line for core in self.cores.values()]:
            for stream_id, content in line:
                assert seen.setdefault(stream_id, content) == content

    def held(self) -> set[tuple[StreamId, int]]:
        """What a majority of the cores has."""
        lines = [set(core.line) for core in self.cores.values()]
        return {entry for line in lines for entry in line if sum(entry in other for other in lines) >= majority(3)}

    def new_content(self) -> int:
        self.contents += 1
        return self.contents


TestGenerations = Generations.TestCase
TestGenerations.settings = settings(max_examples=100, stateful_step_count=40)


def three_that_wrote() -> Generations:
    """Three cores that settled and applied an entry."""
    model = Generations()
    model.connect(set(NAMES))
    model.settle("a", set(NAMES), set(NAMES))
    model.grow("a", set(NAMES), 1)
    return model


def test_a_core_that_reported_applies_nothing_more_of_a_log_that_may_be_left_behind() -> None:
    model = three_that_wrote()
    model.redis_restarts("nothing", stays={"b", "c"})
    model.first_round("a", set(NAMES))
    model.second_round("a", {"b"})
    model.grow("c", {"b", "c"}, 1)
    model.write("a")
    assert model.server.life == Life(2, "run-2")


def test_a_core_that_was_restarted_keeps_its_promise() -> None:
    model = three_that_wrote()
    for name in NAMES:
        model.snapshot(name)
    model.redis_restarts("nothing", stays=set())
    model.settle("a", {"b"}, {"a"})
    model.grow("a", {"a"}, 1)
    model.crash("b")
    model.redis_restarts("nothing", stays={"a"})
    model.connect({"b", "c"})
    model.first_round("c", {"b"})
    model.second_round("c", {"b"})
    model.write("c")
    model.grow("c", {"b", "c"}, 1)
    model.no_two_logs_share_an_id()
    assert position(model.cores["c"].line) > position(model.cores["a"].line)
