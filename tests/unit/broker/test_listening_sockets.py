from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flockmq.errors import AddressInUse
from flockmq.listening_sockets import bound, bound_unix


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


def test_all_addresses_are_those_of_ipv4_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_ipv6 in (socket.has_dualstack_ipv6(), False):
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda has_ipv6=has_ipv6: has_ipv6)
        with bound("::", 0, "listeners.tcp.default.bind") as listener:
            listener.listen()
            assert listener.family == (socket.AF_INET6 if has_ipv6 else socket.AF_INET)
            for host in ("127.0.0.1", "::1") if has_ipv6 else ("127.0.0.1",):
                socket.create_connection((host, listener.getsockname()[1])).close()


def test_an_address_of_another_machine_is_said() -> None:
    with pytest.raises(AddressInUse, match="can't be bound: Cannot assign requested address"):
        bound("192.0.2.1", 1883, "here")


def test_a_unix_socket_is_for_whom_its_mode_says_and_replaces_what_a_dead_node_left(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with bound_unix(path, 0o600, "here") as first:
        first.listen()
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(AddressInUse, match=rf"here: {path} is in use; choose another"):
            bound_unix(path, 0o600, "here")
    bound_unix(path, 0o660, "here").close()


def test_a_file_is_never_taken_for_a_socket_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(AddressInUse):
        bound_unix(path, 0o660, "here")
    assert path.read_text() == "mine"
