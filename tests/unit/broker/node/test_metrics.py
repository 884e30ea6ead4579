"""Numbers of durable sessions: each has its entry in the catalogue, and says what waits where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.slot_table import SlotTable
from flockmq.memory_limit import MemoryMarks
from flockmq.mqtt.message import publication
from flockmq.node.metrics import session_samples, slot_message_samples
from flockmq.routing.targets import SlotSet
from flockmq.telemetry.metrics import CATALOGUE


def shown(hosting: Any) -> dict[str, float]:
    slot_sender = SlotSender([], "r@1", SlotTable(), lambda core: None, lambda queue: None, lambda: None, lambda: 0.0)
    slot_sender.put_acknowledged(SlotSet([3]), publication(4, 1, False, b"t", b"", b""), lambda: None)
    shortage: Any = SimpleNamespace(is_redis_short=True, refused=2, marks=MemoryMarks(100))
    samples = [*slot_message_samples(slot_sender, shortage), *session_samples(hosting)]
    assert {sample.name for sample in samples} <= {metric.name for metric in CATALOGUE}
    return {sample.name: sample.value for sample in samples}


def test_a_node_without_sessions_shows_what_it_sends_to_their_owners() -> None:
    numbers = shown(None)
    assert (numbers["flockmq_slot_queue_messages"], numbers["flockmq_slot_queue_unassigned_messages"]) == (1, 1)
    assert numbers["flockmq_slot_queue_bytes"] > 0
    assert (numbers["flockmq_redis_short"], numbers["flockmq_messages_refused_short"]) == (1, 2)
    assert (numbers["flockmq_node_memory_bytes"], numbers["flockmq_node_memory_max_bytes"]) == (0, 100)
    assert "flockmq_owned_slots" not in numbers


def test_an_owner_shows_what_waits_to_be_durable() -> None:
    slots = {1: SimpleNamespace(loaded=True, wills=[0, 0]), 2: SimpleNamespace(loaded=False, wills=[])}
    store = SimpleNamespace(queued_bytes=5, commits=6, committed_bytes=7, retries=8, redis_full=True, rooms=dict)
    manager = SimpleNamespace(slots=slots, held_wills=SimpleNamespace(count=0, bytes=0))
    parts = {"manager": manager, "congestion": [0, 0, 0], "cancelled_wills": SimpleNamespace(size_bytes=0)}
    service = type("Sessions", (), {"__len__": lambda _: 9, **parts})()
    numbers = shown(SimpleNamespace(session_service=service, store=store, intake=SimpleNamespace(waiting_bytes=4)))
    assert numbers["flockmq_sessions_persistent"] == 9
    assert numbers["flockmq_sessions_congested"] == 3
    families = ("flockmq_owned_", "flockmq_owner_", "flockmq_session_store_")
    of_sessions = {name: value for name, value in numbers.items() if name.startswith(families)}
    assert list(of_sessions.values()) == [2, 1, 2, 4, 5, 6, 7, 8, 1]
