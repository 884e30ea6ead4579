"""What Redis lost while slots moved, and what of it comes again."""

from __future__ import annotations

from typing import Final

import pytest

from judges.faults import Fault
from judges.judge import DUPLICATED, SHARED_TWICE
from judges.made_up import Script
from judges.moved_data import MovedLoss, moved_losses
from judges.verdict import FOREVER
from load.history import NodeSeen, RedisLost

OLDER: Final = Fault(12.0, 15.0, "older redis", ("redis",))
LOST: Final = RedisLost(14.8)


def look(at: float, **slots: int) -> list[NodeSeen]:
    return [NodeSeen(at, core, True, False, count, True) for core, count in slots.items()]


def moved(since: float, until: float) -> list[NodeSeen]:
    """Looks between which slots did."""
    return [*look(since - 1.0, a=512, b=0), *look(since, a=512, b=0), *look(until, a=171, b=341)]


# --- which losses are amid a move -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "is_amid"),
    [
        (14.5, 15.6, True),
        (12.9, 13.9, True),  # a core may not have read yet what went to it 0.9 s ago
        (12.6, 13.7, False),
        (15.1, 16.1, False),
    ],
)
def test_slots_move_while_redis_loses_data_where_a_core_has_others_at_the_next_look(
    since: float, until: float, is_amid: bool
) -> None:
    assert moved_losses([OLDER], [LOST], moved(since, until)) == ((MovedLoss(12.0, 14.8),) if is_amid else ())


@pytest.mark.parametrize(
    ("kind", "ended", "is_amid"),
    [
        ("drain core", 11.9, True),
        ("drain core", 11.7, False),
        ("stop leader", 14.7, True),
        ("stop replicant", 14.7, False),
    ],
)
def test_they_may_move_unseen_behind_a_fault_of_a_core(kind: str, ended: float, is_amid: bool) -> None:
    looks = [*look(11.5, a=512, b=512), *look(15.6, a=512, b=512)]
    fault = Fault(11.6, ended, kind, ("b",))
    assert moved_losses([fault, OLDER], [LOST], looks) == ((MovedLoss(12.0, 14.8),) if is_amid else ())


def test_nothing_is_left_of_what_an_emptied_redis_had() -> None:
    emptied = OLDER._replace(kind="empty redis")
    assert moved_losses([emptied], [LOST], moved(14.5, 15.6)) == (MovedLoss(-FOREVER, 14.8),)


def test_a_fault_by_which_redis_loses_nothing_counts_for_nothing() -> None:
    killed = OLDER._replace(kind="kill redis")
    assert moved_losses([killed], [], moved(14.5, 15.6)) == ()


@pytest.mark.parametrize(
    "looks",
    [
        [*look(14.5, a=512, b=512), *look(15.6, a=512, b=512)],
        [*look(14.5, a=512), *look(15.6, a=512, b=512)],  # `b` said nothing at the first look
        [*look(14.5, a=512, b=512), *look(15.6, a=0, b=0)],  # nobody knew
        look(14.5, a=512, b=0),
    ],
)
def test_nothing_says_that_slots_moved_where_no_core_is_seen_with_another_number(looks: list[NodeSeen]) -> None:
    assert moved_losses([OLDER], [LOST], looks) == ()


# --- what comes again -------------------------------------------------------------------------------------------------


def subscribed(filter: str, *, lasts: bool = True) -> Script:
    script = Script()
    script.connect("pub")
    script.connect("sub", lasts=lasts)
    script.subscribe("sub", filter)
    script.tick(5.0)
    return script


def again(
    filter: str = "$share/g/t", *, kind: str = "older redis", count: int = 341, lasts: bool = True
) -> dict[str, int]:
    """A message is under way when Redis' data is copied, comes, and comes again when Redis has that data again."""
    script = subscribed(filter, lasts=lasts)
    script.publish("pub", 1, qos=2)
    script.look(a=512, b=0)
    with script.losing(kind):
        script.acknowledge("pub", 1)
        script.deliver("sub", "pub", 1, qos=2)
        script.tick(2.0)
    script.look(a=512 - count, b=count)
    script.deliver("sub", "pub", 1, qos=2, dup=True)
    return script.found()


@pytest.mark.parametrize(("filter", "kind_of_finding"), [("$share/g/t", SHARED_TWICE), ("t", DUPLICATED)])
def test_what_a_session_has_in_flight_in_older_data_comes_again_where_its_slot_moved(
    filter: str, kind_of_finding: str
) -> None:
    assert again(filter) == {}
    assert again(filter, count=0) == {kind_of_finding: 1}
    assert again(filter, kind="empty redis") == {kind_of_finding: 1}
    assert again(filter, lasts=False) == {kind_of_finding: 1}


def timed(
    *, published: float = 9.9, came: float = 10.1, again: float = 13.0, left: float = FOREVER, to: str = "sub"
) -> dict[str, int]:
    """Redis' data is copied at 10.0, and is there again from 12.0 on. `left`: the member's connection ends then."""
    script = subscribed("$share/g/t")
    script.connect("other")
    script.subscribe("other", "$share/g/t")

    def at(seconds: float) -> None:
        script.tick(seconds - script.now - 0.1)

    moments = {
        published: lambda: script.put("pub", 1, qos=2),
        came: lambda: script.deliver("sub", "pub", 1, qos=2),
        left: lambda: script.close("sub"),
    }
    for moment in sorted(moment for moment in moments if moment < FOREVER):
        at(moment)
        moments[moment]()
    if left < FOREVER:
        script.connect("sub", present=True)
    at(again)
    script.deliver(to, "pub", 1, qos=2, dup=True)
    faults = Script()
    faults.tick(9.8)
    faults.look(a=512, b=0)
    with faults.losing("older redis"):
        faults.tick(1.8)
    faults.look(a=171, b=341)
    script.events = sorted([*script.events, *faults.events], key=lambda event: event.at)
    return script.found()


def test_what_was_under_way_when_the_data_was_copied_comes_again() -> None:
    assert timed() == {}
    assert timed(published=9.0, came=9.2) == {}


def test_what_was_published_behind_that_does_not() -> None:
    assert timed(published=10.5, came=10.8) == {SHARED_TWICE: 1}


def test_nor_what_its_client_had_answered_long_before_unless_it_was_away_before_it_could() -> None:
    assert timed(published=7.0, came=7.2) == {SHARED_TWICE: 1}
    assert timed(published=7.0, came=7.2, left=7.4) == {}


def test_nor_before_redis_has_lost_data() -> None:
    assert timed(again=11.0) == {SHARED_TWICE: 1}


def test_nor_what_comes_again_only_then() -> None:
    assert timed(came=12.5) == {SHARED_TWICE: 1}


def test_nor_to_another_member() -> None:
    assert timed(to="other") == {SHARED_TWICE: 1}
