"""Shared subscriptions while members come, go and fall behind, in any order (a state machine)."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.mqtt import encode
from unit.broker.protocol.harness import Client, publish
from unit.broker.routing.shared_cluster import GROUP, Cluster, payloads


class Machine(RuleBasedStateMachine):
    """Three nodes, members that come, go, lose their connections, and counts that lag behind. Every message reaches
    one member, or is counted as dropped; and none is dropped while the nodes know of each other what is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(3)
        self.publishers = [self.cluster[number].client(f"p{number}") for number in range(3)]
        self.members: list[tuple[int, Client]] = []
        self.received: Counter[str] = Counter()
        self.published = 0
        self.names = 0
        self.in_step = True
        self.unmatched = 0
        """Messages whose node knew of no member anywhere."""

    @rule(node=st.integers(0, 2), version=st.sampled_from([4, 5]))
    def join(self, node: int, version: int) -> None:
        self.names += 1
        member = self.cluster[node].client(f"m{self.names}", version)
        self.cluster[node].subscribe(member, (GROUP, 0))
        self.members.append((node, member))
        self.in_step = False

    @precondition(lambda self: self.members)
    @rule(which=st.randoms(use_true_random=False), drops=st.booleans())
    def leave(self, which, drops: bool) -> None:  # type: ignore[no-untyped-def]
        node, member = self.members.pop(which.randrange(len(self.members)))
        self.collect_from(member)
        if drops:
            member.lost()
            self.cluster[node].turn()
        else:
            self.cluster[node].feed(member, encode.unsubscribe(member.protocol_version, 9, [GROUP.encode()]))
        self.in_step = False

    @rule()
    def tell(self) -> None:
        self.cluster.settle()
        self.cluster.tell()
        self.in_step = True

    @rule(node=st.integers(0, 2), count=st.integers(1, 9), settle=st.booleans())
    def publish(self, node: int, count: int, settle: bool) -> None:
        before = self.cluster.dropped()
        if not self.cluster[node].router.shared.match(b"t/0"):
            self.unmatched += count
        numbers = range(self.published, self.published + count)
        self.published += count
        run = b"".join(publish(4, "t/0", f"{number:04}") for number in numbers)
        self.cluster[node].feed(self.publishers[node], run)
        if settle:
            self.cluster.settle()
            if self.in_step and self.members:
                assert self.cluster.dropped() == before

    def collect_from(self, member: Client) -> None:
        self.received.update(payloads(member))

    @invariant()
    def nothing_comes_twice(self) -> None:
        for _, member in self.members:
            self.collect_from(member)
        assert all(times == 1 for times in self.received.values())

    def teardown(self) -> None:
        self.cluster.settle()
        self.nothing_comes_twice()
        assert len(self.received) + self.cluster.dropped() + self.unmatched == self.published


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=30)
