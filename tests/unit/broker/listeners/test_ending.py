"""A client that says goodbye and is gone, while what it said before waits to be heard."""

from __future__ import annotations

import pytest

from flockmq.listeners.listening import Listening
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, Subscription, Will
from flockmq.session.port import ALLOWED, ASKED
from unit.broker.listeners.harness import Served
from unit.broker.listeners.test_websocket import BINARY, CLOSE, frame, request
from unit.broker.session.harness import publish


@pytest.mark.parametrize("over", ["unix", "websocket"])
def test_its_disconnect_counts_though_its_end_was_seen_first(over: str) -> None:
    with Served() as served:
        web = Listening(served.engine, "ws:a", served.limits, path="/mqtt") if over == "websocket" else None
        connection, client = served.opened(web)
        if web is not None:
            client.sendall(request())
            served.engine.turn()
            client.recv(1000)

        def said(packets: bytes) -> bytes:
            return packets if web is None else frame(BINARY, packets)

        client.sendall(said(encode.connect(Connect(4, b"p", will=Will(b"dead", b"x", 0, False, None)))))
        served.engine.turn()
        client.recv(100)
        connection.must_be_asked_about(True)
        served.port.verdicts = {b"ask": ASKED}
        subscribe = encode.subscribe(4, 1, [Subscription(b"ask", 0)])
        last = said(subscribe + publish(4, "t", "x") + encode.disconnect(4))
        client.sendall(last if web is None else last + frame(CLOSE, b"\x03\xe8"))
        if web is None:
            client.close()
        for _ in range(3):
            served.engine.turn()
        assert not connection.has_ended()
        served.port.asked[0][2](ALLOWED)
        served.engine.end_turn()
        served.engine.turn()
        assert connection.fd < 0
        assert connection.clean_end
        assert served.port.published == [], "no will"
        assert served.router.counters.messages_received == 1
