"""Numbers of sessions that last: each has its entry in the catalogue, and says what waits where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flockmq.clock import SYSTEM
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.readiness import CUT_OFF, STALE
from flockmq.mqtt.message import publication
from flockmq.node.management_view import ManagementView
from flockmq.routing.targets import SlotSet
from flockmq.telemetry.metrics import FAMILIES


def node(hosting: object) -> Any:
    lanes = SlotSender([], "r@1", lambda core: None, lambda lane: None, lambda: None, lambda: 0.0)
    lanes.put_acknowledged(SlotSet([3]), publication(4, 1, False, b"t", b"", b""), lambda: None)
    slots, shortage = SimpleNamespace(lanes=lanes), SimpleNamespace(is_on=True, refused=2)
    return SimpleNamespace(delivery=SimpleNamespace(slots=slots), hosting=hosting, shortage=shortage)


def shown(hosting: object) -> dict[str, float]:
    samples = list(ManagementView(node(hosting), SYSTEM)._home_samples())
    assert {sample.name for sample in samples} <= FAMILIES.keys()
    return {sample.name: sample.value for sample in samples}


def test_a_node_without_sessions_shows_what_it_sends_to_their_homes() -> None:
    numbers = shown(None)
    assert (numbers["flockmq_courier_messages"], numbers["flockmq_courier_parked_messages"]) == (1, 1)
    assert numbers["flockmq_courier_bytes"] > 0
    assert (numbers["flockmq_redis_short"], numbers["flockmq_messages_refused_short"]) == (1, 2)
    assert "flockmq_home_slots" not in numbers


def test_a_home_shows_what_waits_to_be_durable() -> None:
    slots = {1: SimpleNamespace(loaded=True, wills=[0, 0]), 2: SimpleNamespace(loaded=False, wills=[])}
    store = SimpleNamespace(queued_bytes=5, commits=6, committed_bytes=7, retries=8, redis_full=True, rooms=dict)
    residents = type(
        "Residents", (), {"__len__": lambda _: 9, "holding": SimpleNamespace(slots=slots), "crowds": [0, 0, 0]}
    )()
    numbers = shown(SimpleNamespace(residents=residents, store=store, intake=SimpleNamespace(waiting_bytes=4)))
    assert numbers["flockmq_sessions_persistent"] == 9
    assert numbers["flockmq_sessions_crowded"] == 3
    home = {name: value for name, value in numbers.items() if name.startswith("flockmq_home_")}
    assert list(home.values()) == [2, 1, 2, 4, 5, 6, 7, 8, 1]


@pytest.mark.parametrize(
    ("state", "unfit", "ready"),
    [
        ("starting", "", (False, "starting")),
        ("starting", STALE, (False, "starting")),
        ("ready", "", (True, "ready")),
        ("ready", CUT_OFF, (False, CUT_OFF)),
        ("draining", STALE, (True, "draining")),
    ],
)
def test_a_node_that_cannot_serve_is_not_ready_and_says_why(state: str, unfit: str, ready: tuple[bool, str]) -> None:
    cluster = SimpleNamespace(fitness=SimpleNamespace(unfit=unfit))
    node: Any = SimpleNamespace(state=state, cluster=cluster)
    assert ManagementView(node, SYSTEM).ready() == ready
