"""The judge of the QoS at which messages come."""

from __future__ import annotations

import pytest

from judges.judge import WRONG_QOS
from judges.made_up import Script, begun


def comes_at(qos: int, *, published: int = 2, asked: tuple[int, ...] = (2,)) -> dict[str, int]:
    """To who subscribed to it by so many filters."""
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    for filter, each in zip(("t", "#", "+"), asked, strict=False):
        script.subscribe("sub", filter, each)
    script.tick(1.0)
    script.put("pub", 1, qos=published)
    script.deliver("sub", "pub", 1, qos=qos)
    return script.found()


@pytest.mark.parametrize(("published", "asked", "qos"), [(2, (2,), 2), (2, (1,), 1), (1, (2,), 1), (2, (0, 2, 1), 2)])
def test_it_is_the_lower_one_of_the_messages_and_of_the_highest_subscription(
    published: int, asked: tuple[int, ...], qos: int
) -> None:
    for at in (0, 1, 2):
        assert comes_at(at, published=published, asked=asked) == ({} if at == qos else {WRONG_QOS: 1})


def test_who_subscribed_meanwhile_may_have_had_either() -> None:
    for qos, found in ((0, {WRONG_QOS: 1}), (1, {}), (2, {})):
        script = begun(tells=True)
        script.unsubscribe("sub")
        script.subscribe("sub", "#", 1)
        script.tick(1.0)
        script.publish("pub", 1, qos=2)
        script.subscribe("sub")
        script.acknowledge("pub", 1)
        script.deliver("sub", "pub", 1, qos=qos)
        assert script.found() == found


def test_by_a_shared_subscription_it_comes_at_its_qos_or_at_that_of_a_member_that_had_it_before() -> None:
    for is_left, found in ((False, {WRONG_QOS: 1}), (True, {})):
        script = Script(tells=True)
        script.connect("pub")
        for name, qos in (("a", 2), ("b", 1)):
            script.connect(name, lasts=False)
            script.subscribe(name, "$share/g/t", qos)
        script.tick(1.0)
        script.put("pub", 1, qos=2)
        if is_left:
            script.close("b")
        script.deliver("a", "pub", 1, qos=1)
        assert script.found() == found


def test_what_is_retained_comes_at_the_qos_of_its_subscription() -> None:
    for qos, found in ((2, {WRONG_QOS: 1}), (1, {})):
        script = Script(tells=True)
        script.connect("pub")
        script.put("pub", 1, qos=2, retain=True)
        script.connect("sub")
        script.subscribe("sub", "t", 1)
        script.deliver("sub", "pub", 1, qos=qos, retained=True)
        assert script.found() == found
