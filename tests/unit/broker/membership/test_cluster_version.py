from __future__ import annotations

from functools import partial

from flockmq.membership.cluster_version import ClusterVersion, Rollout


def test_a_cluster_begins_at_version_1_and_never_falls() -> None:
    version = ClusterVersion(3)
    assert version.at_least(1)
    assert not version.at_least(2)
    version.raised(3)
    version.raised(2)
    assert version.at_least(3)


def test_who_waits_for_a_version_is_called_once_when_it_is_reached() -> None:
    version = ClusterVersion(4)
    called: list[int] = []
    for of in (1, 2, 3):
        version.when(of, partial(called.append, of))
    assert called == [1]
    version.raised(2)
    assert called == [1, 2]
    version.raised(4)
    version.raised(4)
    assert called == [1, 2, 3]


def test_a_version_that_this_node_does_not_speak_is_none_that_it_writes() -> None:
    version = ClusterVersion(2)
    version.raised(3)
    assert version.is_passed
    assert not version.at_least(2)


def test_a_gate_opens_with_the_raise() -> None:
    version = ClusterVersion(2)
    gate = version.gate(2)
    assert not gate()
    version.raised(2)
    assert gate()


def test_the_version_is_raised_to_the_lowest_that_all_speak() -> None:
    rollout = Rollout(4, 0.0)
    assert rollout.version_to_raise(0.0, 1, [3, 5], missing=False) == 3
    assert rollout.version_to_raise(1.0, 3, [3, 5], missing=False) == 0
    assert rollout.version_to_raise(2.0, 3, [5, 5], missing=False) == 4


def test_a_raise_that_redis_lost_is_made_again() -> None:
    rollout = Rollout(2, 60.0)
    assert [rollout.version_to_raise(now, 1, [2], missing=False) for now in (0.0, 60.0)] == [0, 2]
    assert rollout.version_to_raise(61.0, 2, [2], missing=False) == 0
    assert rollout.version_to_raise(62.0, 1, [2], missing=False) == 2


def test_a_node_alone_raises_it_to_what_it_speaks() -> None:
    assert Rollout(2, 0.0).version_to_raise(0.0, 1, [], missing=False) == 2


def test_one_node_of_an_older_release_holds_the_raise_and_begins_the_time_anew() -> None:
    rollout = Rollout(2, 60.0)
    assert rollout.version_to_raise(0.0, 1, [2, 2], missing=False) == 0
    assert rollout.version_to_raise(59.0, 1, [2, 1], missing=False) == 0
    assert rollout.version_to_raise(61.0, 1, [2, 2], missing=False) == 0
    assert rollout.version_to_raise(120.0, 1, [2, 2], missing=False) == 0
    assert rollout.version_to_raise(121.0, 1, [2, 2], missing=False) == 2


def test_who_leads_again_begins_the_time_anew() -> None:
    """Another core led meanwhile, and heard of nodes that this one didn't."""
    rollout = Rollout(2, 60.0)
    assert rollout.version_to_raise(0.0, 1, [2], missing=False) == 0
    rollout.begin()
    assert [rollout.version_to_raise(now, 1, [2], missing=False) for now in (70.0, 129.0, 130.0)] == [0, 0, 2]


def test_a_new_cluster_waits_for_nobody_but_who_is_missing() -> None:
    rollout = Rollout(2, 60.0)
    assert rollout.version_to_raise(0.0, 1, [2, 2], missing=True, is_new=True) == 0
    assert rollout.version_to_raise(1.0, 1, [2, 1], missing=False, is_new=True) == 0
    assert rollout.version_to_raise(2.0, 1, [2, 2], missing=False, is_new=True) == 2


def test_nothing_is_raised_while_somebody_is_missing_who_may_come_back_as_he_was() -> None:
    rollout = Rollout(2, 60.0)
    assert rollout.version_to_raise(0.0, 1, [2], missing=True) == 0
    assert rollout.version_to_raise(600.0, 1, [2], missing=True) == 0
    assert rollout.version_to_raise(601.0, 1, [2, 1], missing=False) == 0
    assert rollout.version_to_raise(602.0, 1, [2, 2], missing=False) == 0
