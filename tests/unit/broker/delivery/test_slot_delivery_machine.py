"""Whatever happens to links, slots and nodes, each message that was put reaches every slot that wants it, once and in
order, and nobody is told so before it is durable: `slot senders.Redis` judges.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from unit.broker.delivery.slot_delivery import CORES, NODES, SLOTS, Cluster

senders = st.sampled_from(NODES)
cores = st.sampled_from(CORES)
slot_sets = st.frozensets(st.integers(0, SLOTS - 1), min_size=1)
moves = st.dictionaries(st.integers(0, SLOTS - 1), st.sampled_from((*CORES, "")), min_size=1)


class Bringing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.move({slot: CORES[slot % 3] for slot in range(SLOTS)})
        for sender in NODES:
            for core in CORES:
                self.cluster.connect(sender, core)

    @rule(sender=senders, slots=slot_sets)
    def put(self, sender: str, slots: frozenset[int]) -> None:
        self.cluster.put(sender, slots)

    @rule(slots=slot_sets)
    def put_as_session(self, slots: frozenset[int]) -> None:
        self.cluster.put_as_session(slots)

    @rule(name=senders)
    def move_session(self, name: str) -> None:
        self.cluster.move_session(name)

    @rule(name=senders)
    def end_turn(self, name: str) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.end_turn()

    @rule(name=senders)
    def apply(self, name: str) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.apply()

    @rule(name=senders)
    def run_soon(self, name: str) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.run_soon()

    @rule(name=senders)
    def beat(self, name: str) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.beat()

    @rule(name=cores)
    def load(self, name: str) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.load()

    @rule(name=cores, count=st.integers(1, 8))
    def commit(self, name: str, count: int) -> None:
        if (node := self.cluster.alive(name)) is not None:
            node.sessions.commit(count)

    @rule(slot=st.integers(-1, SLOTS - 1))
    def kill_master(self, slot: int) -> None:
        self.cluster.redis.dead = slot

    @rule(sender=senders, core=cores)
    def carry(self, sender: str, core: str) -> None:
        self.cluster.carry(sender, core)

    @rule()
    def carry_late(self) -> None:
        self.cluster.carry_late()

    @rule(sender=senders, core=cores)
    def carry_back(self, sender: str, core: str) -> None:
        self.cluster.carry_back(sender, core)

    @rule(sender=senders, core=cores)
    def cut(self, sender: str, core: str) -> None:
        self.cluster.cut(sender, core)

    @rule(sender=senders, core=cores)
    def connect(self, sender: str, core: str) -> None:
        self.cluster.connect(sender, core)

    @rule(slots=moves)
    def move(self, slots: dict[int, str]) -> None:
        self.cluster.move(slots)

    @rule(name=senders)
    def kill(self, name: str) -> None:
        self.cluster.kill(name)

    def teardown(self) -> None:
        self.cluster.heal()


TestBringing = Bringing.TestCase
TestBringing.settings = settings(max_examples=60, stateful_step_count=60)


@pytest.mark.parametrize("seed", range(30))
def test_over_a_long_time(seed: int) -> None:
    """Weighted so that most of the time something goes on, and now and then something breaks."""
    chance, cluster = Random(seed), Cluster()
    cluster.move({slot: CORES[slot % 3] for slot in range(SLOTS)})
    for sender in NODES:
        for core in CORES:
            cluster.connect(sender, core)
    for _ in range(2000):
        step(cluster, chance)
    cluster.heal()


def step(cluster: Cluster, chance: Random) -> None:
    name, core = chance.choice(NODES), chance.choice(CORES)
    slots = frozenset(chance.sample(range(SLOTS), chance.randint(1, SLOTS)))
    node, owner = cluster.alive(name), cluster.alive(core)
    match chance.choices(range(13), (12, 4, 12, 5, 5, 5, 16, 14, 4, 2, 0.06, 4, 0.5))[0]:
        case 0:
            cluster.put(name, slots)
        case 1:
            cluster.put_as_session(slots)
        case 2 if node is not None:
            node.end_turn()
        case 3 if node is not None:
            node.apply()
        case 4 if node is not None:
            node.run_soon()
            node.beat()
        case 5 if owner is not None:
            owner.sessions.commit(chance.randint(1, 12))
        case 6:
            cluster.carry(name, core)
        case 7:
            cluster.carry_back(name, core)
            cluster.connect(name, core)
        case 8:
            cluster.carry_late()
        case 9:
            what = chance.randrange(3)
            if what == 0:
                cluster.cut(name, core)
            elif what == 1:
                cluster.move({slot: chance.choice((*CORES, "")) for slot in slots})
            else:
                cluster.move_session(name)
        case 10:
            cluster.kill(name)
        case 11 if owner is not None:
            owner.load()
        case 12:
            cluster.redis.dead = chance.choice((-1, *slots))
