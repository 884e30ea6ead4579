"""A user who is changed or deleted in the log: which of its connections go."""

from __future__ import annotations

import pytest

from flockmq.auth.user_revocation import disabled
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import Principal
from flockmq.rlog.entry import Op
from flockmq.rlog.schema import USERS, User
from unit.broker.node.gate import Make, changed, connack
from unit.broker.protocol.harness import without_words

GONE = [encode.disconnect(5, Reason.NOT_AUTHORIZED)]
AS_IT_WAS = User("hash", "verifier", is_superuser=True)


@pytest.mark.parametrize(
    ("op", "goes"),
    [
        (USERS.delete("jo"), True),
        (USERS.put("jo", User("other", "verifier", is_superuser=True)), True),
        (USERS.put("jo", User("hash", "other", is_superuser=True)), True),
        (USERS.put("jo", User("hash", "verifier", is_superuser=False)), True),
        (USERS.put("jo", disabled(AS_IT_WAS)), True),
        (USERS.put("jo", AS_IT_WAS), False),
        (USERS.delete("ann"), False),
    ],
)
async def test_a_user_that_loses_something_is_sent_away(gate: Make, op: Op, goes: bool) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS), USERS.put("ann", User("hash"))])
    node.plugins.known = Principal(b"jo", superuser=True, user_id=b"jo", user=AS_IT_WAS)
    client, _ = connack(node)
    await changed(node, op)
    assert without_words(client.packets()) == (GONE if goes else [])


async def test_what_comes_to_a_user_sends_nobody_away(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", User("hash"))])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=User("hash"))
    client, _ = connack(node)
    await changed(node, USERS.put("jo", User("hash", "verifier", is_superuser=True)))
    assert not client.packets()


async def test_only_those_go_whom_the_log_let_in(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo")
    client, _ = connack(node)
    await changed(node, USERS.delete("jo"))
    assert not client.packets(), "a token said who it is"


async def test_a_user_deleted_before_connack_goes_at_once(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=AS_IT_WAS)
    node.meanwhile = lambda: node.rlog.put([USERS.delete("jo")])
    assert connack(node)[1][1:] == GONE


async def test_a_table_that_was_read_anew_is_held_against_everybody(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=AS_IT_WAS)
    client, _ = connack(node)
    node.auth.user_revocation.swap(node.auth.user_revocation.fresh())
    await changed(node)
    assert not client.packets(), "nothing was lost"
