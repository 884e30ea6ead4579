"""Who is picked: each member as often as any other, wherever it is; the sticky and the hashed one stay the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import SHARED_TURNS_MAX
from flockmq.durable.session import DurableSession
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.group import Group, MemberList, MembersElsewhere, PickedMember
from flockmq.routing.shared_groups import STRATEGIES, SharedGroups
from flockmq.routing.sink import CONGESTED, Sink
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.routing.targets import NodeTarget
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from unit.broker.durable.session_owner import SessionOwner

NAME = b"$share/g/a/+"
SPREADING = ["random", "round_robin", "round_robin_per_group"]


class Client(Sink):
    """A member's connection."""


class World:
    """One node's view: `here` members of its own, `counts` (connected, away) on the others, by incarnation."""

    def __init__(
        self, strategy: str, here: int, counts: dict[str, tuple[int, int]], away: int = 0, me: str = "m@0"
    ) -> None:
        turn: list[Sink] = []
        self.peers = {name: NodeTarget() for name in counts}
        self.groups = SharedGroups(lambda _: None, 7)
        self.groups.strategy = STRATEGIES[strategy]
        self.groups.me = me
        self.groups.find_peer = self.peers.get
        self.members = [self.join(LocalSession(Client(turn, 5), b"c", Limits(), 32)) for _ in range(here)]
        self.away = [self.join(SessionOwner().opened(window=0)) for _ in range(away)]
        index = FilterIndex()
        others = MembersElsewhere(NAME)
        others.nodes.update(counts)
        if counts:
            index.add(b"a/+", others)
        self.groups.replace_remote(index, {NAME: others} if counts else {})

    def join(self, session: Subscriber) -> Subscription:
        member = Subscription(session, NAME, 1)
        self.groups.add(member)
        return member

    @property
    def group(self) -> Group:
        (group,) = self.groups.match(b"a/1")
        assert isinstance(group, Group)
        return group

    def pick(self, publisher: bytes = b"p", topic: bytes = b"a/1") -> PickedMember:
        group = self.group
        assert self.groups.number_members(group) > 0
        return self.groups.pick(group, publisher, topic)

    def who(self, target: PickedMember) -> object:
        """A member here, or (node, number)."""
        if target.peer is None:
            return target.subscription
        return next(name for name, peer in self.peers.items() if peer is target.peer), target.number


COUNTS = st.dictionaries(st.sampled_from(["a@0", "b@0", "z@0"]), st.tuples(st.integers(0, 4), st.integers(0, 2)))


@given(here=st.integers(1, 5), counts=COUNTS, rounds=st.integers(1, 3), strategy=st.sampled_from(SPREADING[1:]))
def test_in_turn_every_member_in_the_cluster_gets_as_many(
    here: int, counts: dict[str, tuple[int, int]], rounds: int, strategy: str
) -> None:
    world = World(strategy, here, counts)
    total = here + sum(connected for connected, _ in counts.values())
    picked = Counter(world.who(world.pick()) for _ in range(rounds * total))
    assert len(picked) == total
    assert set(picked.values()) == {rounds}


def test_at_random_members_of_small_and_large_nodes_are_as_likely() -> None:
    world = World("random", 1, {"b@0": (3, 0), "c@0": (6, 0)})
    picked = Counter(world.who(world.pick()) for _ in range(10_000))
    assert len(picked) == 10
    assert all(850 < times < 1150 for times in picked.values())


def test_turns_are_a_publishers_own_or_the_groups() -> None:
    own = World("round_robin", 2, {})
    first = {publisher: own.pick(publisher).subscription for publisher in (b"p", b"q")}
    assert own.pick(b"p").subscription is not first[b"p"]
    assert own.pick(b"q").subscription is not first[b"q"]
    groups_own = World("round_robin_per_group", 2, {})
    assert groups_own.pick(b"p").subscription is not groups_own.pick(b"q").subscription


@given(publisher=st.binary(max_size=8), topic=st.binary(max_size=8))
@pytest.mark.parametrize("strategy", ["hash_clientid", "hash_topic"])
def test_a_hash_picks_the_same_member_on_every_node(strategy: str, publisher: bytes, topic: bytes) -> None:
    nodes = {"a@0": 2, "b@0": 1, "c@0": 4}
    picked = set()
    for me, here in nodes.items():
        world = World(strategy, here, {name: (count, 0) for name, count in nodes.items() if name != me}, me=me)
        target = world.pick(publisher, topic)
        assert world.who(target) == world.who(world.pick(publisher, topic))
        if target.subscription is None:
            picked.add(world.who(target))
        else:
            picked.add((me, world.members.index(target.subscription)))
    assert len(picked) == 1


def test_a_hash_of_one_key_says_nothing_of_the_other() -> None:
    by_topic = World("hash_topic", 50, {})
    assert len({by_topic.pick(topic=b"a/%d" % n).subscription for n in range(200)}) > 25
    assert len({by_topic.pick(publisher=b"%d" % n).subscription for n in range(200)}) == 1


@given(here=st.integers(0, 4), others=st.integers(0, 4), publishers=st.lists(st.binary(max_size=3), min_size=1))
def test_a_sticky_member_is_kept_until_it_goes(here: int, others: int, publishers: list[bytes]) -> None:
    world = World("sticky", here, {"b@0": (others, 0)} if others else {})
    if here + others == 0:
        return
    first = {publisher: world.who(world.pick(publisher)) for publisher in publishers}
    for publisher in publishers * 2:
        assert world.who(world.pick(publisher)) == first[publisher]
    gone = next((member for member in world.members if member in first.values()), None)
    if gone is None or here + others == 1:
        return
    world.groups.remove(gone)
    for publisher, was in first.items():
        now = world.who(world.pick(publisher))
        assert now != gone
        assert was in (gone, now)


def test_local_members_come_first_while_one_is_connected() -> None:
    world = World("local", 2, {"b@0": (50, 0)})
    assert {world.pick().subscription for _ in range(100)} == set(world.members)
    for member in world.members:
        world.groups.remove(member)
    assert {world.pick().peer for _ in range(100)} == {world.peers["b@0"]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_is_connected_comes_before_who_is_away(strategy: str) -> None:
    elsewhere = World(strategy, 0, {"b@0": (1, 0)}, away=5)
    assert elsewhere.pick().peer is elsewhere.peers["b@0"]
    nobody = World(strategy, 0, {"b@0": (0, 0)}, away=1)
    assert nobody.pick().subscription is nobody.away[0]
    session = nobody.away[0].session
    assert isinstance(session, DurableSession)
    session.messages.window = 32
    nobody.groups.moved(nobody.away[0])
    assert nobody.groups.count(NAME) == (1, 0)
    assert nobody.pick().subscription is nobody.away[0]


def test_a_member_that_does_not_keep_up_is_passed_over_while_another_does() -> None:
    world = World("round_robin", 3, {})
    slow, *others = world.members
    slow.session.sink.flow = CONGESTED
    assert {world.pick().subscription for _ in range(9)} == set(others)
    for member in others:
        member.session.sink.flow = CONGESTED
    assert slow in {world.pick().subscription for _ in range(9)}


def test_a_node_that_is_no_member_yet_or_any_more_is_not_picked() -> None:
    world = World("round_robin", 1, {"b@0": (9, 0)})
    peer = world.peers.pop("b@0")
    world.groups.others_changed()
    assert {world.who(world.pick()) for _ in range(20)} == set(world.members)
    world.peers["b@0"] = peer
    assert world.groups.number_members(world.group) == 10


@pytest.mark.parametrize("strategy", ["round_robin", "sticky"])
def test_what_is_remembered_of_publishers_is_bounded(strategy: str) -> None:
    world = World(strategy, 3, {})
    for number in range(SHARED_TURNS_MAX + 10):
        world.pick(b"%d" % number)
        assert world.groups.remembered() <= SHARED_TURNS_MAX
    assert world.groups.remembered() > SHARED_TURNS_MAX * 0.9


def test_nothing_is_kept_of_a_group_that_nobody_is_in() -> None:
    world = World("round_robin", 1, {})
    world.groups.remove(world.members[0])
    assert world.groups.match(b"a/1") == []
    assert world.groups.groups == {}
    assert world.groups.group(NAME) is None


@given(st.lists(st.integers(0, 5)))
def test_a_roster_is_a_list_without_repeats(steps: list[int]) -> None:
    sink = Client([], 5)
    members = [Subscription(LocalSession(sink, b"", Limits(), 1), NAME, 1) for _ in range(6)]
    roster, model = MemberList(), set[Subscription]()
    for step in steps:
        member = members[step]
        if member in model:
            roster.discard(member)
            model.discard(member)
        else:
            roster.add(member)
            roster.add(member)
            model.add(member)
        assert set(roster.members) == model
        assert len(roster) == len(model)
        assert all((member in roster) == (member in model) for member in members)


def test_the_members_that_are_counted_are_this_nodes() -> None:
    assert World("random", 3, {"n@1": (5, 5)}, away=2).groups.members() == 5
    assert World("random", 0, {"n@1": (5, 5)}).groups.is_used()
    assert not World("random", 0, {}).groups.is_used()
