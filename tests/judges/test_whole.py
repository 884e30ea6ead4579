"""The judge of what a message says, beside its name."""

from __future__ import annotations

from typing import Any

import pytest

from judges.judge import ALTERED, UNMARKED
from judges.made_up import ONE_CORE, Script, begun
from load.history import KEPT


def comes(published: dict[str, Any], delivered: dict[str, Any], *, version: int = 5, after_s: float = 0.0) -> Script:
    script = Script()
    script.connect("pub")
    script.connect("sub", version=version)
    script.subscribe("sub")
    script.tick(1.0)
    script.put("pub", 1, **published)
    script.tick(after_s)
    script.deliver("sub", "pub", 1, **delivered)
    return script


@pytest.mark.parametrize(("size", "found"), [(100, {}), (99, {ALTERED: 1}), (-1, {ALTERED: 1}), (0, {})])
def test_a_payload_is_whole(size: int, found: dict[str, int]) -> None:
    assert comes({"size": 100}, {"size": size}).found() == found


@pytest.mark.parametrize(
    ("has", "kept", "version", "found"),
    [
        (True, KEPT, 5, {}),
        (True, "", 5, {ALTERED: 1}),
        (True, "others", 5, {ALTERED: 1}),
        (False, KEPT, 5, {ALTERED: 1}),
        (True, "", 4, {}),
    ],
)
def test_properties_are_kept(has: bool, kept: str, version: int, found: dict[str, int]) -> None:
    script = comes({"has_properties": has}, {"properties": kept, "expiry_s": -1.0}, version=version)
    assert script.found() == found


@pytest.mark.parametrize(("left_s", "found"), [(61, 1), (60, 1), (50, 0), (40, 1), (-1, 1)])
def test_an_expiry_is_less_by_what_it_waited(left_s: float, found: int) -> None:
    script = comes({"expiry_s": 60.0}, {"expiry_s": left_s}, after_s=10.0)
    assert script.found() == ({ALTERED: found} if found else {})


def test_without_one_it_has_none() -> None:
    assert comes({}, {"expiry_s": 5.0}).found() == {ALTERED: 1}


def test_a_time_that_is_wrong_excuses_what_is_left_but_not_more_than_there_was() -> None:
    for left_s, found in ((1.0, {}), (60.0, {}), (61.0, {ALTERED: 1})):
        script = begun()
        with script.during("clock core", "a"):
            script.put("pub", 1, expiry_s=60.0)
            script.deliver("sub", "pub", 1, expiry_s=left_s)
        assert script.found(ONE_CORE) == found


@pytest.mark.parametrize(
    ("dup", "is_repeat", "found"),
    [(True, True, {}), (False, True, {UNMARKED: 1}), (False, False, {}), (True, False, {})],
)
def test_what_was_not_answered_comes_again_marked(dup: bool, is_repeat: bool, found: dict[str, int]) -> None:
    script = begun()
    script.put("pub", 1)
    script.close("sub")
    script.connect("sub", present=True)
    script.deliver("sub", "pub", 1, dup=dup, is_repeat=is_repeat)
    assert script.found() == found


def test_to_a_session_with_one_connection_nothing_is_sent_again() -> None:
    script = begun(lasts=False)
    script.put("pub", 1)
    script.deliver("sub", "pub", 1, dup=True)
    assert script.found() == {UNMARKED: 1}
