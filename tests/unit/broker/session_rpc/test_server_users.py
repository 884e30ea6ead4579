"""A client id that one user has is refused to another user."""

from __future__ import annotations

import msgspec
import pytest

from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import OtherUser
from unit.broker.session_rpc.clients import CLEAN_REQUEST, DURABLE_REQUEST, ID, connected, owner_of, token_of
from unit.broker.session_rpc.network import Network


def owned(user: bytes, *, lasts: bool) -> messages.SessionRequest:
    return msgspec.structs.replace(DURABLE_REQUEST if lasts else CLEAN_REQUEST, will=None, user=user)


@pytest.mark.parametrize("lasts", [True, False])
async def test_another_users_connection_is_refused_and_closes_none(network: Network, lasts: bool) -> None:
    _, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    held = token_of(await connected(network, first, owned(b"jo", lasts=lasts)))
    (answer,) = await connected(network, second, owned(b"eve", lasts=not lasts))
    assert isinstance(answer, OtherUser)
    assert (first.clients.kicked, first.clients.held) == ([], {ID: held})
    newer = await connected(network, second, owned(b"jo", lasts=lasts))
    assert token_of(newer) > held, "the same user takes it over"


async def test_a_client_id_that_nobody_has_is_anybodys(network: Network) -> None:
    _, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant, owned(b"jo", lasts=False))
    replicant.clients.let_go(ID)
    assert token_of(await connected(network, replicant, owned(b"eve", lasts=False)))


async def test_the_next_owner_of_a_slot_knows_whose_its_client_ids_are(network: Network) -> None:
    first, second, replicant, other = await network.start("core-0", "core-1", "replicant-0", "replicant-1")
    await connected(network, replicant, owned(b"jo", lasts=False))
    network.move([slot_of(ID)], second if owner_of(network) is first else first)
    await network.settle()
    (answer,) = await connected(network, other, owned(b"eve", lasts=False))
    assert isinstance(answer, OtherUser)
    assert replicant.clients.kicked == []


async def test_who_was_faster_than_an_older_connection_of_another_user_goes_again(network: Network) -> None:
    """A slot moved, and its new owner hears of the older one too late."""
    first, second, replicant, other, third = await network.start(
        "core-0", "core-1", "replicant-0", "replicant-1", "replicant-2"
    )
    held = token_of(await connected(network, replicant, owned(b"jo", lasts=False)))
    next_owner = second if owner_of(network) is first else first
    network.cut(replicant, next_owner)
    network.move([slot_of(ID)], next_owner)
    await network.settle()
    other.clients.holds_on = True
    assert token_of(await connected(network, other, owned(b"eve", lasts=False)))
    waiting = await connected(network, third, owned(b"eve", lasts=False))
    assert waiting == []
    network.mend(replicant, next_owner)
    await network.settle()
    assert {client_id for client_id, _ in other.clients.kicked} == {ID}
    assert [type(answer) for answer in waiting] == [OtherUser]
    assert (replicant.clients.kicked, replicant.clients.held) == ([], {ID: held})


async def test_who_asked_before_a_slot_was_loaded_is_refused_if_another_user_has_an_older_connection(
    network: Network,
) -> None:
    first, second, replicant, other = await network.start("core-0", "core-1", "replicant-0", "replicant-1")
    held = token_of(await connected(network, replicant, owned(b"jo", lasts=False)))
    next_owner = second if owner_of(network) is first else first
    next_owner.sessions.loads_at_once = False
    network.move([slot_of(ID)], next_owner)
    waiting = await connected(network, other, owned(b"eve", lasts=False))
    assert waiting == []
    next_owner.sessions.load(slot_of(ID))
    await network.settle()
    assert [type(answer) for answer in waiting] == [OtherUser]
    assert next_owner.sessions.opened == []
    assert (replicant.clients.kicked, replicant.clients.held) == ([], {ID: held})


async def test_a_connection_goes_whose_client_id_another_users_session_has(network: Network) -> None:
    first, second, replicant = await network.start("core-0", "core-1", "replicant-0")
    await connected(network, replicant, owned(b"jo", lasts=False))
    next_owner = second if owner_of(network) is first else first
    next_owner.sessions.users[ID] = b"eve"
    network.move([slot_of(ID)], next_owner)
    await network.settle()
    assert len(replicant.clients.kicked) == 1
