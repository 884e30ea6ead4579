"""When a node says that it can't serve."""

from __future__ import annotations

from flockmq.bounds import UNFIT_AFTER_S
from flockmq.membership.readiness import COMING_BACK, CUT_OFF, STALE, Readiness


class Own:
    """A Redis of this node alone."""

    def __init__(self) -> None:
        self.trouble = ""
        self.where = "its folder is /data"


def looked(
    readiness: Readiness, now: float, *, is_cut_off: bool = False, is_stale: bool = False, hears_redis: bool = True
) -> str:
    readiness.look(now, is_cut_off=is_cut_off, is_stale=is_stale, hears_redis=hears_redis)
    return readiness.unfit


def test_a_node_that_serves_is_fit() -> None:
    assert looked(Readiness(), 10.0) == ""


def test_a_moment_of_old_tables_or_without_redis_is_no_matter() -> None:
    readiness = Readiness()
    for number in range(10):
        now = number * UNFIT_AFTER_S
        assert looked(readiness, now, is_cut_off=True, is_stale=True) == ""
        assert looked(readiness, now + UNFIT_AFTER_S / 2) == ""


def test_a_node_whose_tables_stay_old_is_unfit_until_they_are_not() -> None:
    readiness = Readiness()
    looked(readiness, 10.0, is_stale=True)
    assert looked(readiness, 10.0 + UNFIT_AFTER_S, is_stale=True) == STALE
    assert looked(readiness, 10.1 + UNFIT_AFTER_S) == ""


def test_that_redis_is_away_for_it_alone_is_what_a_node_says_first() -> None:
    readiness = Readiness()
    looked(readiness, 10.0, is_cut_off=True, is_stale=True)
    assert looked(readiness, 10.0 + UNFIT_AFTER_S, is_cut_off=True, is_stale=True) == CUT_OFF
    assert readiness.is_cut_off


def test_a_node_that_others_do_not_know_again_can_not_serve() -> None:
    readiness = Readiness()
    readiness.is_coming_back = True
    looked(readiness, 10.0)
    assert looked(readiness, 10.0 + UNFIT_AFTER_S) == COMING_BACK
    readiness.is_coming_back = False
    assert looked(readiness, 10.1 + UNFIT_AFTER_S) == ""


def test_a_node_whose_own_redis_stays_away_says_why_and_where_to_look() -> None:
    readiness = Readiness()
    readiness.own_redis = own = Own()
    own.trouble = "it was killed by signal 9"
    assert looked(readiness, 10.0) == ""
    own.trouble = "it ended with exit code 1"
    said = "the embedded Valkey is away: it ended with exit code 1; its folder is /data"
    assert looked(readiness, 10.0 + UNFIT_AFTER_S, hears_redis=False, is_stale=True) == said
    own.trouble = ""
    assert looked(readiness, 10.1 + UNFIT_AFTER_S) == ""


def test_one_that_runs_and_does_not_answer_is_away_too() -> None:
    readiness = Readiness()
    readiness.own_redis = Own()
    looked(readiness, 10.0, hears_redis=False)
    said = "the embedded Valkey is away: it doesn't answer; its folder is /data"
    assert looked(readiness, 10.0 + UNFIT_AFTER_S, hears_redis=False) == said


def test_while_a_redis_that_others_have_too_is_away_for_everybody_nodes_are_fit() -> None:
    readiness = Readiness()
    looked(readiness, 10.0, hears_redis=False)
    assert looked(readiness, 10.0 + UNFIT_AFTER_S, hears_redis=False) == ""
