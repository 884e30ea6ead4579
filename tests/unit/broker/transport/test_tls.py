"""TLS without a socket: data, goodbyes, and handshakes that are cut or broken."""

from __future__ import annotations

import ssl
import warnings

import pytest

from flockmq.bounds import TLS_HELLO_MAX_BYTES
from flockmq.transport.tls import Tls
from flockmq.transport.tls_certificates import TlsCertificates
from unit.broker.transport.pki import Client, Pki


def certificates(pki: Pki, **changed: object) -> TlsCertificates:
    return TlsCertificates("listeners.ssl.a", pki.settings(**changed))


def shaken(server: Tls, client: Client) -> bytes:
    """Bytes back and forth until both are open, or one gave up; what the client then heard."""
    heard = b""
    for _ in range(4):
        said = client.say()
        assert server.unwrap(said) == b""
        if server.has_hello and not server.is_open:
            assert server.unwrap(b"") == b""
        heard = client.hear(server.wrap(b""))
    return heard


def test_data_goes_both_ways_and_each_side_says_goodbye(pki: Pki) -> None:
    server, client = Tls(certificates(pki)), Client(pki.trusting())
    shaken(server, client)
    assert server.is_open
    assert server.unwrap(client.say(b"x" * 100_000)) == b"x" * 100_000
    assert client.hear(server.wrap(b"y" * 100_000)) == b"y" * 100_000
    assert server.unwrap(client.say(b"last") + client.goodbye()) == b"last"
    assert server.has_ended
    assert server.unwrap(b"more") == b""
    server.farewell(0)
    with pytest.raises(ssl.SSLZeroReturnError):  # close_notify, not a torn connection
        client.hear(server.wrap(b""))


def test_nothing_is_made_for_a_client_before_its_hello_is_whole(pki: Pki) -> None:
    server, client = Tls(certificates(pki)), Client(pki.trusting())
    hello = client.say()
    for at in range(len(hello) - 1):
        server.unwrap(hello[at : at + 1])
        assert not server.has_hello
    server.unwrap(hello[-1:])
    assert server.has_hello
    assert not server.has_begun()
    server.unwrap(b"")
    assert server.has_begun()
    client.hear(server.wrap(b""))
    server.unwrap(client.say())
    assert server.is_open


def in_records(hello: bytes, size: int) -> bytes:
    """The same ClientHello, which is in one record, fragmented over records of `size` bytes (RFC 8446 section 5.1)."""
    pieces = [hello[at : at + size] for at in range(5, len(hello), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_hello_may_be_fragmented_over_records(pki: Pki, size: int) -> None:
    server, client = Tls(certificates(pki)), Client(pki.trusting())
    server.unwrap(in_records(client.say(), size))
    assert server.has_hello
    server.unwrap(b"")
    assert not server.is_amid_message
    client.hear(server.wrap(b""))
    assert server.unwrap(client.say(b"x")) == b"x"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x10\x0c\x00\x04MQTT",
        b"\x16\x02\x01",
        b"\x16\x03\x01\xff\xff",
        pytest.param(b"\x16\x03\x01\x00\x05\x01\x02\x01\x40\x03", id="OpenSSL would reserve 128 KiB for it"),
        pytest.param(b"\x16\x03\x01\x00\x03\x01\x02\x01\x16\x03\x01\x00\x01\x40", id="how long is in the next record"),
    ],
)
def test_what_is_no_client_hello_is_refused_at_once(pki: Pki, data: bytes) -> None:
    server = Tls(certificates(pki))
    server.unwrap(data)
    assert server.fault is not None
    assert not server.has_begun()


def test_a_client_that_sent_a_part_of_its_answer_may_have_announced_a_long_message(pki: Pki) -> None:
    server, client = Tls(certificates(pki)), Client(pki.trusting())
    server.unwrap(client.say())
    server.unwrap(b"")
    client.hear(server.wrap(b""))
    assert not server.is_amid_message
    answer = client.say()
    server.unwrap(answer[:-1])
    assert server.is_amid_message
    server.unwrap(answer[-1:])
    assert server.is_open


def test_what_follows_a_hello_at_once_counts_as_a_part_of_an_answer(pki: Pki) -> None:
    server, client = Tls(certificates(pki)), Client(pki.trusting())
    server.unwrap(client.say() + b"\x14\x03\x03")
    server.unwrap(b"")
    assert server.is_amid_message


def test_a_broken_handshake_ends_with_an_alert(pki: Pki) -> None:
    server = Tls(certificates(pki))
    size = 512
    server.unwrap(b"\x16\x03\x01" + size.to_bytes(2, "big") + bytes(size))
    server.unwrap(b"")
    assert server.fault is not None
    assert server.wrap(b"")[0] == 0x15
    assert size < TLS_HELLO_MAX_BYTES


def test_versions_before_1_2_are_refused(pki: Pki) -> None:
    context = pki.trusting()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    server, client = Tls(certificates(pki)), Client(context)
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        shaken(server, client)


def test_the_versions_and_ciphers_that_are_configured_are_used(pki: Pki) -> None:
    only = certificates(pki, versions=("tlsv1.2",), ciphers="ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384")
    server, client = Tls(only), Client(pki.trusting())
    shaken(server, client)
    assert client.tls.version() == "TLSv1.2"
    assert client.tls.cipher()[0].endswith("AES256-GCM-SHA384")  # type: ignore[index]
