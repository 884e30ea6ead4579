"""One user's connections have very many messages retained, or delayed, at once: others are served meanwhile.

It is judged as in `test_ends`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import pytest

from conformance.wire import PUBACK, V5, Wire, connect, publish
from hostile.test_ends import longest_ping_s
from integration.broker.conftest import Node

CONNECTIONS: Final = 300
MESSAGES: Final = 100
AT_ONCE_MAX_S: Final = 0.5
"""It was 2 s, with a task for each message. A slice takes a hundredth of that, a garbage collection more."""


@pytest.mark.parametrize("topic", ["r/{}/{}", "$delayed/3600/d/{}/{}"])
def test_messages_for_the_log_of_connections_that_publish_together_delay_nobody(node: Node, topic: str) -> None:
    with ExitStack() as stack:
        hostile = [stack.enter_context(Wire(node.mqtt)) for _ in range(CONNECTIONS)]
        for number, wire in enumerate(hostile):
            wire.send(connect(V5, f"hostile-{number}"))
            assert wire.next() is not None
        other = stack.enter_context(Wire(node.mqtt))
        other.send(connect(V5, "other"))
        assert other.next() is not None
        retains = not topic.startswith("$")
        for number, wire in enumerate(hostile):
            wire.send(
                b"".join(
                    publish(V5, topic.format(number, at), b"x", qos=1, packet_id=at + 1, retain=retains)
                    for at in range(MESSAGES)
                )
            )
        metric = "flockmq_retained_messages" if retains else "flockmq_delayed_messages"
        longest_s = longest_ping_s(node, other, lambda _: node.metric(metric) == CONNECTIONS * MESSAGES)
        for wire in hostile:
            assert [wire.expect(PUBACK).packet_id for _ in range(MESSAGES)] == list(range(1, MESSAGES + 1))
        assert longest_s < AT_ONCE_MAX_S
