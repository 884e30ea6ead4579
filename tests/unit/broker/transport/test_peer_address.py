from __future__ import annotations

import socket
import struct

from flockmq.listening_sockets import bound
from flockmq.transport.peer_address import peer_of, plain


def test_the_peer_of_a_socket_is_named_by_address_and_port() -> None:
    with bound("127.0.0.1", 0, "here") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            with accepted:
                assert peer_of(accepted.fileno(), socket.AF_INET) == client.getsockname()
    assert peer_of(-1, socket.AF_INET) == ("?", 0)


def test_an_ipv4_client_of_an_ipv6_socket_has_an_ipv4_address() -> None:
    assert plain("::ffff:192.0.2.1") == "192.0.2.1"
    assert plain("::ffff:0:1") == "::ffff:0:1"
    listener = bound("::", 0, "here")
    listener.setblocking(True)
    listener.listen()
    with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as client:
        accepted, _ = listener.accept()
        assert peer_of(accepted.fileno(), accepted.family) == client.getsockname()
        accepted.close()
    listener.close()


def test_who_reset_its_connection_passes_for_nobody_else() -> None:
    with bound("127.0.0.1", 0, "here") as listener:
        listener.setblocking(True)
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        client.sendall(b"last words")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        with accepted:
            assert accepted.recv(100) == b"last words"
            assert peer_of(accepted.fileno(), accepted.family) == ("?", 0)
