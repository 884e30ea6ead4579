"""The judge of client ids' users: who comes by another's client id isn't let in."""

from __future__ import annotations

import pytest

from judges.made_up import Script
from judges.owners import STOLEN
from load.history import Intruded


def intrude(script: Script, client: str, reason: int = 0) -> None:
    asked_at = script.tick()
    script.events.append(Intruded(script.tick(), client, "b", asked_at, reason))


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize(("reason", "found"), [(0x85, {}), (2, {}), (0, {STOLEN: 1})])
def test_another_user_is_turned_away(lasts: bool, reason: int, found: dict[str, int]) -> None:
    script = Script()
    script.connect("one", lasts=lasts, clean_start=not lasts)
    intrude(script, "one", reason)
    assert script.found() == found


def test_a_client_id_that_nobody_has_is_anybodys() -> None:
    script = Script()
    intrude(script, "one")
    one = script.connect("one", lasts=False, clean_start=True)
    script.disconnect("one", one)
    script.close("one", one)
    script.tick(10)
    intrude(script, "one")
    assert script.found() == {}


def test_a_session_is_its_users_while_the_client_is_away() -> None:
    script = Script()
    script.connect("one")
    script.close("one")
    script.tick(60)
    intrude(script, "one")
    assert script.found() == {STOLEN: 1}


def test_amid_a_fault_it_goes_with_its_session() -> None:
    script = Script()
    script.connect("clean", lasts=False, clean_start=True)
    script.connect("durable")
    script.fault("kill core", "core-1")
    intrude(script, "clean")
    intrude(script, "durable")
    assert script.found() == {STOLEN: 1}
