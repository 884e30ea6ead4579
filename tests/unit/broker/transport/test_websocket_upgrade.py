"""The request that opens a WebSocket, and each way in which it is refused."""

from __future__ import annotations

import pytest

from flockmq.bounds import WS_HEAD_MAX_BYTES
from flockmq.transport.websocket import WebSocket
from unit.broker.transport.test_websocket import BINARY, frame, request


def test_the_answer_is_the_one_of_rfc_6455_section_1_3_and_names_the_subprotocol() -> None:
    websocket = WebSocket("/mqtt", ())
    assert websocket.unwrap(request() + frame(BINARY, b"first")) == b"first"
    assert websocket.wrap(b"") == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("offered", "chosen"), [("mqttv3.1", b"mqttv3.1"), ("mqttv3.1, mqtt", b"mqtt"), ("chat, MQTT", b"MQTT")]
)
def test_the_subprotocol_is_mqtt_if_it_is_offered(offered: str, chosen: bytes) -> None:
    websocket = WebSocket("/mqtt", ())
    websocket.unwrap(request(sec_websocket_protocol=offered))
    assert websocket.wrap(b"").endswith(b"Sec-WebSocket-Protocol: " + chosen + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("head", "status", "why"),
    [
        (request("POST /mqtt HTTP/1.1"), 405, b"opened with GET"),
        (request("GET /mqtt HTTP/1.0"), 400, b"HTTP/1.1"),
        (request("GET /mqtt"), 400, b"no HTTP request"),
        (request("GET /other HTTP/1.1"), 404, b"MQTT is at /mqtt"),
        (request(upgrade=None), 426, b"send Upgrade: websocket"),
        (request(connection="close"), 426, b"send Upgrade: websocket"),
        (request(sec_websocket_version="8"), 426, b"version 13 only"),
        (request(sec_websocket_key="short"), 400, b"16 bytes in base64"),
        (request(sec_websocket_key="dGhlIHNhbXBsZSBub25j!Q=="), 400, b"16 bytes in base64"),
        (request(sec_websocket_protocol=None), 400, b"must offer mqtt"),
        (request(sec_websocket_protocol="chat"), 400, b"must offer mqtt"),
        (b"GET /mqtt HTTP/1.1\r\nno colon\r\n\r\n", 400, b"without a name and a colon"),
        (b"GET /" + b"x" * WS_HEAD_MAX_BYTES, 431, b"over 8192 bytes"),
        (b"\x10\x0c\x00\x04MQTT", 400, b"this is a WebSocket listener"),
    ],
)
def test_a_request_that_is_no_upgrade_to_mqtt_is_answered_with_what_is_wrong(
    head: bytes, status: int, why: bytes
) -> None:
    websocket = WebSocket("/mqtt", ())
    assert websocket.unwrap(head) == b""
    assert websocket.fault is not None
    answer = websocket.wrap(b"")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close\r\n" in answer
    assert why in answer


APP = ("https://app.example.com",)


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "answer"),
    [
        (APP, "broker.example.com", "https://app.example.com", b"101"),
        (APP, "broker.example.com", "https://APP.example.com", b"101"),
        (APP, "broker.example.com", None, b"101"),
        (APP, "broker.example.com", "https://evil.example.com", b"403"),
        (APP, "broker.example.com", "http://app.example.com", b"403"),
        (APP, "evil.example.com", "https://evil.example.com", b"403"),  # whose name leads here
        (("*",), "broker.example.com", "https://evil.example.com", b"101"),
        ((), "broker.example.com", None, b"101"),
        ((), "broker.example.com", "https://evil.example.com", b"403"),
        ((), "broker.example.com", "https://broker.example.com", b"101"),
        ((), "Broker.example.com:443", "https://broker.example.com", b"101"),
        ((), "broker.example.com", "http://broker.example.com:80", b"101"),
        ((), "broker.example.com:8083", "http://broker.example.com:8083", b"101"),
        ((), "broker.example.com:8083", "http://broker.example.com", b"403"),
        ((), "[::1]:8083", "http://[::1]:8083", b"101"),
        ((), "[::1]", "http://[::1]", b"101"),
        ((), "broker.example.com", "null", b"403"),
        ((), None, "http://", b"403"),
        ((), "broker.example.com", "https://broker.example.com.evil.example", b"403"),
    ],
)
def test_pages_of_other_origins_are_refused(
    allowed: tuple[str, ...], host: str | None, origin: str | None, answer: bytes
) -> None:
    websocket = WebSocket("/mqtt", allowed)
    websocket.unwrap(request(host=host, origin=origin))
    assert websocket.wrap(b"")[9:12] == answer
