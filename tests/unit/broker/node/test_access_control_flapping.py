"""Clients that come and go too often: which ends count, and for whom."""

from __future__ import annotations

import pytest

from flockmq.config.auth_settings import (
    FlappingSettings,
)
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import PeerInfo, Principal
from unit.broker.node.gate import OPEN, Make, connack, is_let_in
from unit.broker.protocol.harness import Client


async def test_only_ends_that_are_the_clients_doing_count_as_flapping(gate: Make) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    for reason in (Reason.SERVER_SHUTTING_DOWN, Reason.SESSION_TAKEN_OVER, Reason.QUOTA_EXCEEDED) * 3:
        connack(node)[0].close(reason)
        assert len(node.rlog.tables.bans) == 0
    for _ in range(2):
        connack(node)[0].lost()
    assert node.rlog.tables.bans.get(("client", '["","c",""]')) is not None
    assert connack(node)[1] == [encode.connack(5, Reason.BANNED)]
    assert not node.access._hosts


async def test_nobody_has_another_one_banned_by_coming_and_going_in_its_name(
    gate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    at, who = PeerInfo("192.0.2.66", 1, "tcp:default"), Principal(b"mallory")
    monkeypatch.setattr(Client, "peer", lambda client: at)
    node.plugins.known = who
    for _ in range(2):
        connack(node)[0].lost()
    assert len(node.rlog.tables.bans) == 1
    assert connack(node)[1] == [encode.connack(5, Reason.BANNED)]
    who = node.plugins.known = Principal(b"victim")
    assert is_let_in(connack(node)[1]), "another user of this client id and address"
    node.plugins.known, at = Principal(b"mallory"), PeerInfo("192.0.2.1", 1, "tcp:default")
    assert is_let_in(connack(node)[1]), "the same user and client id elsewhere"


@pytest.mark.parametrize(
    ("binding", "username", "counts"), [("user", b"jo", True), ("user", b"", False), ("none", b"jo", False)]
)
async def test_who_is_put_off_counts_where_only_its_own_user_can_do_so(
    gate: Make, binding: str, username: bytes, counts: bool
) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    node.node.limits.client_id_binding = binding
    node.plugins.known = Principal(username)
    for _ in range(2):
        connack(node)[0].close(Reason.SESSION_TAKEN_OVER)
    assert len(node.rlog.tables.bans) == counts


async def test_nothing_is_kept_of_clients_while_flapping_isnt_minded(gate: Make) -> None:
    node = gate(OPEN)
    connack(node)
    assert not node.access._hosts
