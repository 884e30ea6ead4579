"""Messages that no connection waits for wait for clients that read as connections that publish do."""

from __future__ import annotations

import pytest

from flockmq.bounds import OFFERED_BYTES, SINK_CONGESTED_MAX_S
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import publication
from flockmq.publishing import unattended
from flockmq.session.limits import Limits
from unit.broker.publishing.published import OtherNode, Published, will


@pytest.fixture
async def slow(tries_again_at_once: None) -> Published:
    """Its subscriber has one message in flight, and is slow when three more wait; a fifth wouldn't fit behind those."""
    return Published(Limits(max_inflight=1, max_mqueue_len=4))


def payloads(packets: list[bytes]) -> list[str]:
    return [packet[7:].decode() for packet in packets if packet[0] >> 4 == 3]


async def read_all(published: Published) -> list[str]:
    """What the subscriber gets if it acknowledges each message as it comes."""
    got: list[str] = []
    while packets := published.subscriber.packets():
        got += payloads(packets)
        for packet in packets:
            published.subscriber.feed(encode.pub_ack(frame.PUBACK, 4, int.from_bytes(packet[5:7], "big")))
        published.node.turn()
        await published.rest()
    return got


async def test_very_many_wills_leave_a_subscriber_that_reads_connected_and_complete(slow: Published) -> None:
    other = OtherNode()
    slow.router.remote.add(b"#", other)
    names = [str(number) for number in range(50)]
    for name in names:
        slow.publish(name)
    await slow.rest()
    assert len(other.taken) == 50, "who isn't slow doesn't wait"
    assert not slow.subscriber.has_ended()
    assert slow.accepted == []
    for callback in other.waiting:
        callback()
    assert slow.accepted == names[:4], "the others are with who is responsible for them"
    assert slow.publishing.new_bytes > 0
    assert await read_all(slow) == names
    assert (slow.accepted, slow.publishing.new_bytes) == (names, 0)


async def test_what_waits_for_a_slow_client_delays_no_other_user_and_no_QoS_0(slow: Published) -> None:
    fast = slow.node.client("f")
    slow.node.subscribe(fast, ("f", 1))
    for number in range(6):
        slow.publishing.publish(will(str(number), b"a"), lambda: None)
    slow.publishing.publish(will("behind", b"a", topic=b"f"), lambda: None)
    slow.publishing.publish(will("other", b"b", topic=b"f"), lambda: None)
    await slow.rest()
    assert payloads(fast.packets()) == ["other"], "those of one user keep their order"
    slow.publish("0", qos=0, topic=b"f")
    await slow.rest()
    assert len(fast.packets()) == 1
    fast.feed(encode.pub_ack(frame.PUBACK, 4, 1))
    assert await read_all(slow) == ["0", "1", "2", "3", "4", "5"]
    assert payloads(fast.packets()) == ["behind"]


async def test_a_client_that_makes_no_progress_is_waited_for_as_long_as_its_publishers_do(slow: Published) -> None:
    for number in range(6):
        slow.publish(str(number))
    await slow.rest()
    assert slow.accepted == ["0", "1", "2", "3"]
    stalled_s = slow.router.host.now_s + SINK_CONGESTED_MAX_S + 0.1
    assert slow.subscriber.check_progress(stalled_s)
    await slow.rest()
    assert slow.subscriber.has_ended(), "it lags, so the next ones fill its queue"
    assert slow.accepted == ["0", "1", "2", "3", "4", "5"]
    assert slow.publishing.new_bytes == 0


async def test_if_very_much_waits_a_slow_client_is_not_waited_for(
    slow: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        slow.publish(str(number))
    await slow.rest()
    monkeypatch.setattr(unattended, "UNOFFERED_MAX_BYTES", 3 * len(will("0").packet) + 3 * OFFERED_BYTES)
    for number in range(6, 9):
        slow.publish(str(number))
    await slow.rest()
    assert slow.subscriber.has_ended()
    assert slow.accepted == [str(number) for number in range(9)]


async def test_the_expiry_runs_while_a_client_reads(slow: Published) -> None:
    for number in range(4):
        slow.publish(str(number))
    slow.publish("expired", expiry_s=9)
    slow.publish("kept", expiry_s=60)
    await slow.rest()
    slow.now_s += 9.5
    assert await read_all(slow) == ["0", "1", "2", "3", "kept"]
    assert slow.router.counters.dropped_expired == 1
    assert slow.accepted == ["0", "1", "2", "3", "expired", "kept"]


async def test_one_that_waits_for_a_client_and_came_another_way_meanwhile_comes_once(slow: Published) -> None:
    for number in range(4):
        slow.publish(str(number))
    left = will("left")
    left.origin = bytes(16)
    slow.publishing.publish(left, lambda: slow.accepted.append("left"))
    await slow.rest()
    again = will("left")
    again.origin = left.origin
    slow.router.delivery.deliver(slow.router.route(b"t").fanout, again, None)
    assert await read_all(slow) == ["0", "1", "2", "3", "left"]
    assert slow.accepted == ["0", "1", "2", "3", "left"]


async def test_one_that_is_due_waits_for_slow_clients_too(slow: Published) -> None:
    for number in range(4):
        slow.publish(str(number))
    await slow.rest()
    accepted = slow.publishing.publish_due(publication(4, 1, False, b"t", b"due", b""))
    await slow.rest()
    assert accepted is not None
    assert not accepted.is_set()
    assert await read_all(slow) == ["0", "1", "2", "3", "due"]
    assert accepted.is_set()
