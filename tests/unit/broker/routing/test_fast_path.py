"""The fast path does what the ordinary one does, whatever the packets and wherever the reads cut them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing import fast_path
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, split

TOPICS = ("a", "a/b", "a/b/c", "x/1", "x/2", "longer/topic/of/four")
FILTERS = ("#", "a/#", "+/1", "x/+", "a/b", "nobody")


def packets(version: int, seed: random.Random, count: int) -> list[bytes]:
    made = []
    for number in range(count):
        qos = seed.choice((0, 0, 0, 1, 1))
        made.append(
            publish(
                version,
                seed.choice(TOPICS),
                f"{number}:" + "x" * seed.choice((0, 1, 5, 5, 5, 120, 200)),
                qos=qos,
                packet_id=number + 1 if qos else 0,
            )
        )
    return made


def run(
    version: int, subscriber_version: int, reads: list[bytes], filters: list[tuple[str, int]]
) -> tuple[bytes, bytes]:
    node = Node(Limits(max_inflight=1000))
    subscriber, publisher = node.client("s", subscriber_version), node.client("p", version)
    node.subscribe(subscriber, *filters)
    answers, arrived = b"", b""
    for data in reads:
        answers += b"".join(node.feed(publisher, data))
        arrived += b"".join(subscriber.packets())
    return answers, arrived


@given(st.integers(), st.sampled_from([4, 5]), st.sampled_from([4, 5]), st.data())
def test_cuts_change_nothing(number: int, version: int, subscriber_version: int, data: st.DataObject) -> None:
    seed = random.Random(number)
    made = packets(version, seed, 12)
    stream = b"".join(made)
    filters = [(filter, seed.choice((0, 1, 2))) for filter in FILTERS if seed.random() < 0.5] or [("#", 1)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert run(version, subscriber_version, reads, filters) == run(version, subscriber_version, made, filters)


@given(st.integers(), st.sampled_from([4, 5]))
def test_a_fast_delivery_is_what_was_published(number: int, version: int) -> None:
    made = packets(version, random.Random(number), 20)
    _, arrived = run(version, version, [b"".join(made)], [("#", 1)])
    assert split(arrived) == made


def plain(node: Node, version: int, data: bytes, publisher: Client) -> int:
    return fast_path.scan(node.router, data, 0, version, publisher)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (4, publish(4, "a", "x", retain=True)),
        (4, publish(4, "a", "x", qos=1, packet_id=1)),
        (5, b"\x30\x07\x00\x01a\x02\x01\x00x"),  # with a property
        (4, b"\x30\x02\x00\x05"),  # the topic goes beyond the packet
        (4, b"\x30\x83\x00\x00\x01a"),  # a padded length
        (4, publish(4, "a/+", "x")),
        (4, publish(4, "", "x")),
        (4, publish(4, "a\0", "x")),
        (4, publish(4, "a", "x")[:-1]),
        (4, b"\x30"),
        (5, b"\x30\x03\x00\x01a"),  # no room for the property length
        (4, b"\x30\xff\xff\xff\xff\x01\x00\x01a"),
    ],
)
def test_what_is_not_plain_is_left_to_the_ordinary_path(version: int, data: bytes) -> None:
    node = Node()
    publisher = node.client("p", version)
    assert plain(node, version, data, publisher) == 0
    good = publish(version, "a", "x")
    assert plain(node, version, good + data, publisher) == len(good)


def test_a_run_leaves_as_one_chunk() -> None:
    node = Node()
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("x/+", 0))
    run = b"".join(publish(4, f"x/{i % 3}", str(i)) for i in range(30))
    publisher.feed(run)
    assert subscriber.out == [run]


def test_a_cached_head_follows_the_subscriptions() -> None:
    node = Node()
    one, other, publisher = node.client("1"), node.client("2"), node.client("p")
    packet = publish(4, "a/b", "x")
    node.subscribe(one, ("a/b", 0))
    node.feed(publisher, packet)
    assert one.packets() == [packet]
    node.subscribe(other, ("a/+", 0))
    node.feed(publisher, packet)
    assert (one.packets(), other.packets()) == ([packet], [packet])
    one.lost()
    node.feed(publisher, packet)
    assert other.packets() == [packet]


def test_the_heads_of_a_topic_are_bounded() -> None:
    node = Node()
    publisher = node.client("p")
    for size in range(100):
        node.feed(publisher, publish(4, "a", "x" * size))
    assert len(node.router.matches.heads4) == 16
