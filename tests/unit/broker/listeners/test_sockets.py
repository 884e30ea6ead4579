from __future__ import annotations

import socket

import pytest

from flockmq.errors import AddressInUse
from flockmq.listeners.sockets import bound


def test_a_bound_socket_refuses_clients_until_it_is_listened_on() -> None:
    with bound("127.0.0.1", 0, "listeners.tcp.default.bind") as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(listener.getsockname())


def test_accepted_sockets_send_at_once() -> None:
    with bound("127.0.0.1", 0, "listeners.tcp.default.bind") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_said_with_its_mend() -> None:
    with bound("127.0.0.1", 0, "listeners.tcp.default.bind") as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(
            AddressInUse, match=rf"listeners.tcp.default.bind: 127.0.0.1:{port} is in use; choose another"
        ):
            bound("127.0.0.1", port, "listeners.tcp.default.bind")


def test_an_address_of_another_machine_is_said() -> None:
    with pytest.raises(AddressInUse, match="can't be bound: Cannot assign requested address"):
        bound("192.0.2.1", 1883, "here")
