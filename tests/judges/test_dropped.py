"""The judge of connections that end though no fault touches them."""

from __future__ import annotations

from typing import Any

import pytest

from judges.judge import DROPPED, Rules, judge
from judges.made_up import Script, begun
from load.history import Banned, ChangeAsked


def connected(*, fault_at: str = "", later_s: float = 0.0) -> Script:
    """To node `a`, for a while; then a fault."""
    script = Script()
    script.connect("c")
    script.tick(30.0)
    if fault_at:
        script.fault("stop core", fault_at)
    script.tick(later_s)
    return script


def dropped(script: Script) -> int:
    return judge(script.events).count(DROPPED)


@pytest.mark.parametrize(
    ("fault_at", "later_s", "found"), [("", 0.0, 1), ("core", 0.0, 1), ("a", 5.0, 0), ("a", 15.0, 1)]
)
def test_a_node_ends_a_connection_only_where_a_fault_touched_it(fault_at: str, later_s: float, found: int) -> None:
    script = connected(fault_at=fault_at, later_s=later_s)
    script.close("c", by_server=True)
    assert dropped(script) == found


def test_who_ends_it_itself_or_has_another_or_is_banned_is_dropped_by_nobody() -> None:
    script = connected()
    script.close("c")
    assert dropped(script) == 0
    script = connected()
    first = script.connect("d")
    script.connect("d", node="b", present=True)
    script.close("d", first, by_server=True)
    assert dropped(script) == 0
    script = connected()
    script.events.append(ChangeAsked(script.tick(), "ban", "c"))
    script.close("c", by_server=True)
    assert dropped(script) == 0


def test_who_is_taken_over_in_the_millisecond_in_which_another_asks_is_dropped_by_nobody() -> None:
    script = connected()
    first = script.connect("d")
    script.ask("d", node="b")
    script.tick(-0.1)
    script.close("d", first, by_server=True)
    assert dropped(script) == 0


def test_who_comes_back_in_the_millisecond_in_which_it_was_dropped_was_dropped() -> None:
    script = connected()
    first = script.connect("d")
    script.close("d", first, by_server=True)
    script.tick(-0.1)
    script.ask("d", node="b")
    assert dropped(script) == 1


@pytest.mark.parametrize(
    ("version", "waited_s", "what", "found"),
    [
        (4, 10.0, {"delay_s": 1.0}, 0),
        (4, 10.0, {"retain": True}, 0),
        (4, 10.0, {}, 1),
        (4, 8.0, {"delay_s": 1.0}, 1),
        (5, 10.0, {"delay_s": 1.0}, 1),
    ],
)
def test_who_cannot_be_told_that_the_log_did_not_take_it_is_let_go(
    version: int, waited_s: float, what: dict[str, Any], found: int
) -> None:
    script = Script()
    script.connect("c", version=version)
    script.publish("c", 1, **what)
    script.fault("kill redis", "redis", lasts_s=waited_s - 0.2)
    script.close("c", by_server=True)
    assert dropped(script) == found


@pytest.mark.parametrize(
    ("lasts", "kind", "moved", "found"),
    [
        (True, "empty redis", 341, 0),
        (True, "empty redis", 0, 1),
        (False, "empty redis", 341, 1),
        (True, "older redis", 341, 1),
    ],
)
def test_who_has_no_session_any_more_since_redis_lost_it_amid_a_move_is_let_go(
    lasts: bool, kind: str, moved: int, found: int
) -> None:
    script = Script()
    script.connect("c", lasts=lasts)
    script.look(core=512, back=0)
    with script.losing(kind):
        pass
    script.look(core=512 - moved, back=moved)
    script.close("c", by_server=True)
    assert dropped(script) == found


@pytest.mark.parametrize(("kind", "found"), [("stop leader", 0), ("stop replicant", 1)])
def test_slots_may_move_unseen_behind_a_fault_of_a_core(kind: str, found: int) -> None:
    script = Script()
    script.connect("c")
    script.fault(kind, "another")
    with script.losing("empty redis"):
        pass
    script.close("c", by_server=True)
    assert dropped(script) == found


def test_who_began_a_session_that_the_older_data_do_not_have_is_let_go() -> None:
    script = Script()
    script.look(core=512, back=0)
    with script.losing("older redis"):
        script.connect("c")
    script.look(core=171, back=341)
    script.close("c", by_server=True)
    assert dropped(script) == 0


@pytest.mark.parametrize(("messages", "found"), [(3, 1), (4, 0)])
def test_who_is_told_that_it_did_not_keep_up_may_have_had_more_to_read_than_there_is_room_for(
    messages: int, found: int
) -> None:
    script = begun()
    script.tick(30.0)
    for number in range(1, messages + 1):
        script.put("pub", number)
    script.close("sub", by_server=True, reason=0x97)
    assert judge(script.events, Rules(max_mqueue_len=3)).count(DROPPED) == found


@pytest.mark.parametrize(("later_s", "found"), [(3.0, 0), (10.0, 1)])
def test_who_had_another_one_long_ago_is_dropped(later_s: float, found: int) -> None:
    script = connected()
    first = script.connect("d")
    script.connect("d", node="b", present=True)
    script.close("d", first)
    script.tick(later_s)
    script.close("d", by_server=True)
    assert dropped(script) == found


@pytest.mark.parametrize(("later_s", "found"), [(1.0, 0), (10.0, 1)])
def test_so_is_whose_ban_was_lifted_long_ago(later_s: float, found: int) -> None:
    script = connected()
    script.events += [ChangeAsked(script.tick(), "ban", "c"), Banned(script.tick(), "c", holds=False)]
    script.tick(later_s)
    script.close("c", by_server=True)
    assert dropped(script) == found
