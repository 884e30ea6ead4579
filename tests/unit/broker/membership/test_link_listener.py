"""Where links are listened for."""

from __future__ import annotations

import socket

import pytest

from flockmq.membership.link_listener import bound


@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("has_ipv6", [socket.has_dualstack_ipv6(), False])
async def test_all_addresses_are_those_of_ipv4_too(
    monkeypatch: pytest.MonkeyPatch, host: str, *, has_ipv6: bool
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_ipv6)
    with await bound(host, 0) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1") if has_ipv6 else ("127.0.0.1",):
            socket.create_connection((address, port)).close()
