"""The judges of bans and rules: who is banned isn't connected, what is denied isn't done."""

from __future__ import annotations

import pytest

from judges.judge import BANNED, LET_THROUGH, LOST
from judges.made_up import Script, begun
from judges.topics import unheard
from load.history import Banned, ChangeAsked, RulesChanged, Will


def banned(*, holds: bool = True, asked: bool = False) -> Script:
    """A client that is connected."""
    script = begun()
    change(script, holds, asked=asked)
    return script


def change(script: Script, holds: bool, *, asked: bool = False) -> None:
    if asked:
        script.events.append(ChangeAsked(script.tick(), "ban" if holds else "lift", "sub"))
    script.events.append(Banned(script.tick(), "sub", holds))


def test_who_is_banned_is_sent_away() -> None:
    script = banned()
    script.close("sub", by_server=True)
    script.tick(10.0)
    script.connect("pub", present=True)
    assert script.found() == {}
    script = banned()
    script.tick(10.0)
    script.close("sub")
    assert script.found() == {BANNED: 1}


def test_who_is_banned_isnt_let_in_until_that_is_lifted() -> None:
    script = banned()
    script.close("sub", by_server=True)
    script.tick(10.0)
    script.connect("sub", present=True)
    script.close("sub", by_server=True)
    assert script.found() == {BANNED: 1}
    script = banned()
    script.close("sub", by_server=True)
    script.tick(10.0)
    change(script, holds=False)
    script.connect("sub", present=True)
    script.tick(10.0)
    script.crossing(1)
    assert script.found() == {}


def test_a_ban_that_a_fault_kept_from_being_heard_holds_when_it_is_over() -> None:
    script = banned()
    script.fault("isolate", "a", lasts_s=8.0)
    script.close("sub", by_server=True)
    script.tick(10.0)
    script.connect("pub", present=True)
    assert script.found() == {}


def test_a_node_that_was_cut_off_hears_of_a_ban_when_tcp_sends_again() -> None:
    for sent_away_s, found in ((5.0, {}), (10.0, {BANNED: 1})):
        script = banned()
        script.fault("cut", "a", "redis", lasts_s=5.0)
        script.tick(sent_away_s)
        script.close("sub", by_server=True)
        script.tick(1.0)
        script.connect("pub", present=True)
        assert script.found() == found


def test_a_lift_that_somebody_was_asked_for_may_be_done_at_once_or_late() -> None:
    script = banned(asked=True)
    script.close("sub", by_server=True)
    script.tick(10.0)
    script.events.append(ChangeAsked(script.tick(), "lift", "sub"))
    script.tick(3.0)
    script.connect("sub", present=True)
    change(script, holds=False, asked=True)
    change(script, holds=True, asked=True)
    script.tick(4.0)
    script.crossing(1)
    assert script.found() == {}
    script.tick(20.0)
    script.crossing(2)
    assert script.found() == {BANNED: 1}


def denied(version: int = 5) -> Script:
    """To publish to `t`, and to subscribe to it."""
    script = Script(tells=True)
    script.connect("pub", version=version)
    script.connect("sub")
    script.subscribe("sub", "t/#")
    script.events.append(RulesChanged(script.tick(), "t", is_denied=True))
    script.tick(5.0)
    return script


def test_what_is_denied_is_refused() -> None:
    script = denied()
    script.publish("pub", 1, "t/1")
    script.refuse("pub", 1)
    script.put("pub", 2, "s")
    script.ask_for("pub", "t/+")
    script.deny("pub", "t/+", 0x87)
    script.subscribe("pub", "s")
    assert script.found() == {}


@pytest.mark.parametrize(("version", "found"), [(5, {LET_THROUGH: 1}), (4, {})])
def test_what_is_denied_isnt_acknowledged_unless_by_a_version_that_cant_say_no(
    version: int, found: dict[str, int]
) -> None:
    script = denied(version)
    script.publish("pub", 1, "t/1")
    script.unsubscribe("sub", "t/#")
    script.acknowledge("pub", 1)
    assert script.found() == found


def test_who_may_not_hear_of_it_any_more_does_not() -> None:
    prefix = unheard("t")
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub", f"{prefix}/#")
    script.publish("pub", 1, f"{prefix}/1")
    script.events.append(RulesChanged(script.tick(), prefix, is_denied=True))
    script.tick(5.0)
    script.deliver("sub", "pub", 1, f"{prefix}/1")
    script.acknowledge("pub", 1)
    script.put("pub", 2, f"{prefix}/1")
    assert script.found() == {}, "what was sent before comes, and who may publish may go on"
    script.deliver("sub", "pub", 2, f"{prefix}/1")
    assert script.found() == {LET_THROUGH: 1}


def test_what_waited_for_who_was_away_comes_when_it_may_be_heard_of_again() -> None:
    prefix = unheard("t")
    script = Script()
    script.connect("pub")
    script.connect("sub", lasts=True)
    script.subscribe("sub", f"{prefix}/#")
    script.close("sub")
    script.events.append(RulesChanged(script.tick(), prefix, is_denied=True))
    script.tick(5.0)
    script.put("pub", 1, f"{prefix}/1")
    script.events.append(RulesChanged(script.tick(5.0), prefix, is_denied=False))
    script.connect("sub", lasts=True, present=True)
    script.deliver("sub", "pub", 1, f"{prefix}/1")
    assert script.found() == {}


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_denied_comes_to_nobody(version: int) -> None:
    script = denied(version)
    script.publish("pub", 1, "t")
    script.deliver("sub", "pub", 1, "t")
    assert script.found() == {LET_THROUGH: 1}


@pytest.mark.parametrize("filter", ["t", "t/#", "+/1", "#", "$share/g/t/2"])
def test_what_overlaps_what_is_denied_isnt_granted(filter: str) -> None:
    script = denied()
    script.subscribe("pub", filter)
    assert script.found() == {LET_THROUGH: 1}


def test_what_was_sent_before_a_change_or_behind_another_is_of_that_time() -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub", "t/#")
    script.tick(1.0)
    script.publish("pub", 1, "t/1")
    script.events.append(RulesChanged(script.tick(), "t", is_denied=True))
    script.tick(5.0)
    script.acknowledge("pub", 1)
    script.deliver("sub", "pub", 1, "t/1")
    script.events.append(RulesChanged(script.tick(), "t", is_denied=False))
    script.put("pub", 2, "t/1")
    script.deliver("sub", "pub", 2, "t/1")
    assert script.found() == {}


# What is due later.


def left(*, delay_s: float, denied_for_s: float, is_will: bool = False) -> Script:
    """It was allowed when it was left, and comes when it is due; meanwhile it is denied."""
    script = begun()
    script.connect("ann", will=Will(1, "t", 1, delay_s=delay_s) if is_will else None)
    if is_will:
        script.close("ann")
    else:
        script.put("ann", 1, delay_s=delay_s)
    script.events.append(RulesChanged(script.tick(), "t", True))
    script.tick(denied_for_s)
    script.deliver("sub", "ann!" if is_will else "ann", 1)
    return script


@pytest.mark.parametrize("is_will", [False, True])
@pytest.mark.parametrize(("delay_s", "found"), [(1.0, {}), (20.0, {LET_THROUGH: 1})])
def test_what_is_due_while_it_is_denied_does_not_come(is_will: bool, delay_s: float, found: dict[str, int]) -> None:
    assert left(delay_s=delay_s, denied_for_s=delay_s + 5.0, is_will=is_will).found() == found


def test_what_is_allowed_again_when_it_is_due_comes() -> None:
    script = left(delay_s=20.0, denied_for_s=10.0)
    script.events = script.events[:-1]
    script.events.append(RulesChanged(script.tick(), "t", False))
    script.tick(20.0)
    script.deliver("sub", "ann", 1)
    assert script.found() == {}


@pytest.mark.parametrize(("delay_s", "found"), [(0.0, {}), (20.0, {BANNED: 1})])
def test_what_a_banned_client_left_does_not_come_when_it_is_due(delay_s: float, found: dict[str, int]) -> None:
    script = begun()
    script.connect("ann", will=Will(1, "t", 1, delay_s=delay_s))
    script.events.append(Banned(script.tick(), "ann"))
    script.close("ann", by_server=True)
    script.tick(delay_s + 5.0)
    script.deliver("sub", "ann!", 1)
    assert script.found() == found


def test_what_may_be_dropped_when_it_is_due_is_lost_to_nobody() -> None:
    for prefix, found in (("other", {LOST: 1}), ("t", {})):
        script = begun()
        script.put("pub", 1, delay_s=1.0)
        script.events.append(ChangeAsked(script.tick(), "deny", prefix))
        script.tick(60.0)
        script.publish("pub", 2, "elsewhere")
        assert script.found() == found


@pytest.mark.parametrize(("topic", "found"), [("t", {LET_THROUGH: 1}), ("other", {})])
def test_who_may_not_publish_its_will_is_not_let_in(topic: str, found: dict[str, int]) -> None:
    script = begun()
    script.events.append(RulesChanged(script.tick(), "t", True))
    script.tick(10.0)
    script.connect("ann", will=Will(1, topic, 1))
    assert script.found() == found
