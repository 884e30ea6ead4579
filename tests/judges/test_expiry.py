"""The judge of expiry: what expired doesn't come any more."""

from __future__ import annotations

from typing import Any

from judges.judge import EXPIRED
from judges.made_up import ONE_CORE, Script, begun


def comes_after(seconds: float, *, dup: bool = False, fault: str = "", **more: Any) -> Script:
    """A message that expires after two seconds."""
    script = begun()
    script.put("pub", 1, expiry_s=2.0, **more)
    if fault:
        script.fault(fault, "a")
    script.tick(seconds)
    if dup:
        script.close("sub")
        script.connect("sub", present=True)
    script.deliver("sub", "pub", 1, dup=dup)
    return script


def test_a_message_comes_while_it_lives() -> None:
    assert comes_after(1.9).found() == {}
    assert comes_after(4.0).found() == {EXPIRED: 1}


def test_what_is_retained_expires_too() -> None:
    script = begun()
    script.put("pub", 1, expiry_s=2.0, retain=True)
    script.deliver("sub", "pub", 1)
    script.tick(10.0)
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == {EXPIRED: 1}


def test_what_was_begun_to_be_sent_is_sent_again_whenever() -> None:
    assert comes_after(60.0, dup=True).found() == {}


def test_the_time_counts_from_the_acknowledgement() -> None:
    script = begun()
    script.publish("pub", 1, expiry_s=2.0)
    script.tick(30.0)
    script.acknowledge("pub", 1)
    script.tick(1.0)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}
    script = begun()
    script.publish("pub", 1, expiry_s=2.0)
    script.tick(30.0)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_of_a_delayed_message_it_counts_from_when_it_is_due() -> None:
    assert comes_after(11.0, delay_s=10.0).found() == {}
    assert comes_after(15.0, delay_s=10.0).found() == {EXPIRED: 1}


def test_a_fault_holds_up_what_is_on_its_way() -> None:
    assert comes_after(2.0, fault="stop replicant").found() == {}
    assert comes_after(5.0, fault="stop replicant").found() == {EXPIRED: 1}
    assert comes_after(5.0, fault="lossy replicant").found() == {}
    assert comes_after(8.0, fault="lossy replicant").found() == {EXPIRED: 1}
    assert comes_after(3.0, fault="clock core").found() == {EXPIRED: 1}


def test_a_time_that_is_wrong_excuses_all() -> None:
    assert comes_after(60.0, fault="clock core").found(ONE_CORE) == {}
