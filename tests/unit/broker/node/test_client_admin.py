"""Lists of clients and sessions where a node is gone, stands still, or is of an older release."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from flockmq.bounds import SLOTS
from flockmq.clock import SYSTEM
from flockmq.management.client_rows import ClientsWanted, SessionsWanted
from flockmq.management.view import Unavailable
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.node import client_admin
from flockmq.node.client_admin import ClientAdmin
from flockmq.node.connection_registrations import ConnectionRegistrations
from flockmq.session_rpc.client_registry import ClientRegistry
from flockmq.session_rpc.messages import Admission, Done, SessionRequest, is_clean_session, nonce_of

ME, OTHER, REPLICANT = "core-0@1", "core-1@1", "replicant-0@1"
OLDER = Refusal("unavailable", "core-1 doesn't serve it")


class Sessions:
    """None."""

    def __init__(self) -> None:
        self.sessions = SimpleNamespace(by_id={})
        self.manager = SimpleNamespace(slots={}, why_unread=lambda _: "")
        self.has_loaded = lambda slot: True

    def __len__(self) -> int:
        return 0


class Site:
    """A core that owns all slots but those of another one, and three clients of a node that answers nothing."""

    def __init__(self, error: Exception, owners: tuple[str, ...] = (ME,)) -> None:
        self.error = error
        self.slots = {slot: owners[slot % len(owners)] for slot in range(SLOTS) if owners[slot % len(owners)]}
        self.cluster: Any = SimpleNamespace(
            incarnation=ME,
            settings=SimpleNamespace(name="core-0"),
            slots=SimpleNamespace(count=self.count),
            ask=self.ask,
            on_request=lambda method, handler: None,
        )
        registry = ClientRegistry()
        for slot, owner in self.slots.items():
            if owner == ME:
                registry.own(slot)
        for number, name in enumerate((b"a", b"b", b"c"), start=1):
            if owners == (ME,):
                registry.register(name, REPLICANT, number)
        slot_owners: Any = SimpleNamespace(
            owner=lambda slot: self.slots.get(slot, ""), attach=self.attach, detach=self.detach
        )
        self.attached: list[SessionRequest | None] = []
        self.detached: list[tuple[bytes, int, bytes]] = []
        self.service: Any = Sessions()
        self.registrations = ConnectionRegistrations(bytes)
        clients: Any = SimpleNamespace(by_id={}, registrations=self.registrations)
        self.directory = ClientAdmin(self.cluster, lambda: ME, slot_owners, registry, clients, self.service, SYSTEM)

    def attach(self, client_id: bytes, request: SessionRequest | None, done: Done) -> None:
        self.attached.append(request)
        done(Admission(7, is_durable=False, present=False))

    def detach(self, client_id: bytes, token: int, *, nonce: bytes) -> None:
        self.detached.append((client_id, token, nonce))

    def count(self) -> dict[str, int]:
        return dict(sorted(Counter(self.slots.values()).items()))

    async def ask(self, node: str, method: str, body: bytes) -> bytes:
        await asyncio.sleep(0)
        raise self.error

    async def clients(self, **wanted: Any) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(await self.directory.clients(ClientsWanted(**wanted)))
        return shown


@pytest.mark.parametrize("error", [OLDER, LinkLost("there is no link"), TimeoutError()])
async def test_of_a_node_that_doesnt_answer_the_owner_says_what_it_knows(error: Exception) -> None:
    site = Site(error)
    page = await site.clients()
    assert [
        (row["client_id"], row["node"], row["heard"]) for row in sorted(page["data"], key=lambda row: row["client_id"])
    ] == [(name, "replicant-0", False) for name in "abc"]
    page = await site.clients(username="jo")
    assert (page["data"], page["missing"]) == ([], ["replicant-0 doesn't answer"])
    assert not json.loads(await site.directory.client("a"))["heard"]
    for question in (site.directory.kick("a"), site.directory.session("a", 0, 10)):
        with pytest.raises(Unavailable, match=r"replicant-0, where|serve it"):
            await question


async def test_what_a_page_lacks_is_said() -> None:
    page = await Site(OLDER, (ME, OTHER, "")).clients()
    assert page["missing"] == ["core-1 doesn't answer", "341 of 1024 slots of client ids have no owner at the moment"]
    shown = json.loads(await Site(OLDER, (ME, OTHER)).directory.sessions(SessionsWanted()))
    assert shown["missing"] == ["core-1 doesn't answer"]


async def test_who_has_no_owner_at_the_moment_is_said_to_have_none() -> None:
    with pytest.raises(Unavailable, match="the client id has no owner at the moment"):
        await Site(OLDER, ("",)).directory.client("a")
    with pytest.raises(Unavailable, match="core-1 doesn't serve it"):
        await Site(OLDER, (OTHER,)).directory.client("a")
    with pytest.raises(Unavailable, match="core-1 doesn't answer"):
        await Site(LinkLost("no link"), (OTHER,)).directory.kick("a")


async def test_an_owner_that_loads_its_sessions_yet_says_so() -> None:
    site = Site(OLDER)
    site.service.has_loaded = lambda slot: False
    with pytest.raises(Unavailable, match="the client id is on its way to its new owner core-0"):
        await site.directory.client("a")


async def test_a_node_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_admin, "OVERVIEW_WAIT_S", 0.05)
    site = Site(OLDER)

    async def never(node: str, method: str, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    site.cluster.ask = never
    assert len((await site.clients())["data"]) == 3


@pytest.mark.parametrize("owners_keep_wills", [True, False])
async def test_who_ends_a_session_says_that_its_client_is_not_back(owners_keep_wills: bool) -> None:
    """Else its will is lost, which is held back after its node sent it away."""
    site = Site(OLDER)
    site.registrations.owners_keep_wills = lambda: owners_keep_wills
    assert await site.directory.end_session("d")
    (request,) = site.attached
    assert (request is not None) == owners_keep_wills
    assert request is None or (is_clean_session(request) and request.nonce)
    assert site.detached == [(b"d", 7, nonce_of(request))]
