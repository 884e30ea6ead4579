"""The judge of refusals: what was refused had no effect."""

from __future__ import annotations

from typing import Any

import pytest

from judges.judge import REFUSED
from judges.made_up import Script, begun
from load.history import Message, RetainedStood


def refused(**more: Any) -> Script:
    script = begun()
    script.publish("pub", 1, **more)
    script.refuse("pub", 1)
    return script


def test_what_was_refused_comes_to_nobody() -> None:
    script = refused()
    assert script.found() == {}
    script.deliver("sub", "pub", 1)
    assert script.found() == {REFUSED: 1}


def test_nor_is_it_retained() -> None:
    script = refused(retain=True)
    script.events.append(RetainedStood(script.tick(), "a", {}))
    assert script.found() == {}
    script = refused(retain=True)
    script.events.append(RetainedStood(script.tick(), "a", {"t": Message("pub", 1)}))
    assert script.found() == {REFUSED: 1}
    script = refused(retain=True)
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == {REFUSED: 1}


def test_what_got_no_answer_once_may_come_and_so_may_what_was_taken_then() -> None:
    script = begun()
    script.publish("pub", 1)
    script.close("pub")
    script.connect("pub", present=True)
    script.publish("pub", 1, again=True)
    script.refuse("pub", 1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}
    script = refused()
    script.publish("pub", 1, again=True)
    script.acknowledge("pub", 1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


@pytest.mark.parametrize("reason", [0x80, 0x97])
def test_what_was_refused_for_want_of_room_does_not_come_later_either(reason: int) -> None:
    script = begun()
    script.publish("pub", 1, delay_s=2.0)
    script.refuse("pub", 1, reason)
    script.tick(3.0)
    assert script.found() == {}
    script.deliver("sub", "pub", 1)
    assert script.found() == {REFUSED: 1}
