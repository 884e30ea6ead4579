"""The judge of repeats: a message comes once."""

from __future__ import annotations

import pytest

from judges.judge import DUPLICATED, REPEATED
from judges.made_up import begun


def test_a_message_sent_once_to_a_connection_comes_once() -> None:
    script = begun()
    script.crossing(1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {REPEATED: 1}


def test_qos_2_comes_once_also_when_the_connection_is_another() -> None:
    script = begun()
    script.crossing(1, qos=2)
    script.close("sub")
    script.connect("sub", present=True)
    script.deliver("sub", "pub", 1, qos=2)
    assert script.found() == {DUPLICATED: 1}


def test_qos_2_may_come_again_to_another_session() -> None:
    script = begun(lasts=False)
    script.crossing(1, qos=2)
    script.close("sub")
    script.connect("sub", lasts=False)
    script.subscribe("sub")
    script.deliver("sub", "pub", 1, qos=2)
    assert script.found() == {}


def test_overlapping_filters_bring_a_message_once() -> None:
    script = begun()
    script.subscribe("sub", "#")
    script.crossing(1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {REPEATED: 1}


def test_what_comes_by_a_group_too_is_no_repeat() -> None:
    script = begun()
    script.subscribe("sub", "$share/g/t")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1, filters=("t",))
    script.deliver("sub", "pub", 1, filters=("$share/g/t",))
    assert script.found() == {}


@pytest.mark.parametrize(("qos", "kind"), [(1, REPEATED), (2, DUPLICATED)])
def test_a_delayed_message_comes_once_unless_its_leader_ends(qos: int, kind: str) -> None:
    script = begun(lasts=False)
    script.put("pub", 1, qos=qos, delay_s=1.0)
    script.tick(1.0)
    script.deliver("sub", "pub", 1, qos=qos)
    script.deliver("sub", "pub", 1, qos=qos)
    assert script.found() == {kind: 1}
    script = begun(lasts=False)
    script.put("pub", 1, qos=qos, delay_s=1.0)
    script.fault("kill leader", "a")
    for _ in range(2):
        script.deliver("sub", "pub", 1, qos=qos)
    assert script.found() == {}


def test_a_delayed_message_of_qos_2_comes_once_all_the_same_if_its_publisher_has_a_session() -> None:
    script = begun()
    script.put("pub", 1, qos=2, delay_s=1.0)
    script.fault("kill leader", "a")
    for _ in range(2):
        script.deliver("sub", "pub", 1, qos=2)
    assert script.found() == {DUPLICATED: 1}
