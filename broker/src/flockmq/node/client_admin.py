"""The clients and sessions of the whole cluster, as any of its nodes can show and end them.

    this node ─▶ a core ─▶ all owners ─▶ nodes of the connections    a page
    this node ─▶ the owner of its client id ─▶ its node              one of them

Owners know who is connected where, and have the sessions that last. All else of a connection is known to its node. Rows
travel as the JSON that is shown. What always holds: a long list doesn't hold the event loop, because it is made in
slices. A list that lacks something says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from flockmq.auth.rules import glob
from flockmq.bounds import DIRECTORY_SLICE_ROWS, OVERVIEW_WAIT_S, SLOTS
from flockmq.clock import Clock
from flockmq.durable.due_wills import HASH as WILLS
from flockmq.durable.session_service import SessionService
from flockmq.management.rows import ClientRow, ClientsWanted, Listing, SessionRow, SessionsWanted, ShownSession
from flockmq.management.view import Unavailable
from flockmq.membership.cluster import Cluster
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import name_of
from flockmq.node.connections import Connections
from flockmq.node.listing_order import START, Part, Placed, PlacedRow, in_order, merged, part_of, sliced
from flockmq.node.listing_rows import asks_the_node, client_row, matching_clients, session_row, shown_session
from flockmq.routing.slots import slot_of
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc import messages
from flockmq.session_rpc.attach_result import Admission, AttachError
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.client_registry import ClientRegistry, Holder

A = TypeVar("A")

TOGETHER: Final = 1000
"""How many client ids nodes are asked about at once, where only they can say which are wanted."""

Shown = tuple[bytes, bytes]
"""A client id, and its row."""

_json: Final = msgspec.json.Encoder().encode
_pack: Final = msgspec.msgpack.Encoder().encode


class OneSession(msgspec.Struct, frozen=True, array_like=True):
    """A question about one session: with at most `limit` of its subscriptions, behind the first `after`."""

    client_id: bytes
    after: int
    limit: int


class ConnectionsPage(msgspec.Struct, frozen=True, array_like=True):
    """A question to a node about some of its connections: those that are wanted."""

    client_ids: list[bytes]
    wanted: ClientsWanted


class HeldConnection(msgspec.Struct, frozen=True, array_like=True):
    """A connection, by its token."""

    client_id: bytes
    token: bytes


class _DirectoryQuestion:
    """One kind of question to another node, and how its answer is read."""

    def __init__(self, method: str, answer: Any) -> None:
        self.method = f"directory.{method}"
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(answer).decode
        self.handler: Callable[[Any], Awaitable[object]]


class ClientDirectory:
    """A `management.view.ClientsView` and `SessionsView`. `teller`: the core that is asked for pages; `residents` None:
    no sessions that last run here."""

    def __init__(
        self,
        cluster: Cluster,
        teller: Callable[[], str],
        owners: SessionRpcClient,
        registry: ClientRegistry,
        clients: Connections,
        residents: SessionService | None,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._teller = teller
        self._owners = owners
        self._registry = registry
        self._clients = clients
        self._residents = residents
        self._clock = clock
        self._clients_page = self._question("clients", ClientsWanted, bytes, self._tell_clients)
        self._sessions_page = self._question("sessions", SessionsWanted, bytes, self._tell_sessions)
        self._owner_clients = self._question("home_clients", ClientsWanted, Part, self._clients_of_owner)
        self._owner_sessions = self._question("home_sessions", SessionsWanted, Part, self._sessions_of_owner)
        self._one_client = self._question("client", bytes, bytes, self._client_of_owner)
        self._one_session = self._question("session", OneSession, bytes, self._session_of_owner)
        self._kick = self._question("kick", bytes, bool, self._kick_of_owner)
        self._node_clients = self._question("node_clients", ConnectionsPage, list[Shown], self._clients_of_node)
        self._node_session = self._question("node_session", OneSession, bytes, self._session_of_node)
        self._close = self._question("close", HeldConnection, bool, self._close_of_node)

    # What management asks. All raise Unavailable.

    async def clients(self, wanted: ClientsWanted) -> bytes:
        """Raises ValueError for what can't be meant."""
        matching_clients(wanted)
        _after(wanted)
        return bytes(await self._surely(self._teller(), self._clients_page, wanted))

    async def sessions(self, wanted: SessionsWanted) -> bytes:
        """Raises ValueError for what can't be meant."""
        _after(wanted)
        return bytes(await self._surely(self._teller(), self._sessions_page, wanted))

    async def client(self, client_id: str) -> bytes:
        """Empty: it isn't connected."""
        raw = client_id.encode()
        return bytes(await self._of_owner(raw, self._one_client, raw))

    async def session(self, client_id: str, after: int, limit: int) -> bytes:
        """Of those that end with their connections, too. Empty: there is none."""
        raw = client_id.encode()
        return bytes(await self._of_owner(raw, self._one_session, OneSession(raw, after, limit)))

    async def kick(self, client_id: str) -> bool:
        """End its connection; False: there is none."""
        raw = client_id.encode()
        return bool(await self._of_owner(raw, self._kick, raw))

    async def end_session(self, client_id: str) -> bool:
        """End the client's connection first: it hears why. Then end the session as a CONNECT does that wants none, by a
        connection that is gone at once. That ends a session that can't be read, too. False: there was neither."""
        was_connected = False
        with contextlib.suppress(Unavailable):
            was_connected = await self.kick(client_id)
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._owners.attach(client_id.encode(), None, partial(self._ended, client_id.encode(), answered))
        return await answered or was_connected

    def _ended(self, client_id: bytes, answered: asyncio.Future[bool], answer: Admission | AttachError) -> None:
        if isinstance(answer, Admission):
            self._owners.detach(client_id, answer.token)
        if answered.done():
            return
        if isinstance(answer, Admission):
            answered.set_result(not answer.absent)
        else:
            answered.set_exception(Unavailable(str(answer)))

    async def _of_owner(self, client_id: bytes, question: _DirectoryQuestion, asked: object) -> Any:
        owner = self._owners.owner(slot_of(client_id))
        if not owner:
            raise Unavailable("the client id has no home at the moment")
        return await self._surely(owner, question, asked)

    async def _surely(self, node: str, question: _DirectoryQuestion, asked: object) -> Any:
        try:
            return await self._ask(node, question, asked, 3 * OVERVIEW_WAIT_S)
        except (LinkLost, TimeoutError):
            raise Unavailable(f"{name_of(node) or 'a core'} doesn't answer") from None
        except Refusal as refused:
            raise Unavailable(str(refused)) from None

    # As the core that tells.

    async def _tell_clients(self, wanted: ClientsWanted) -> bytes:
        page = await self._page(self._owner_clients, wanted)
        shown = await self._of_nodes(page, wanted)
        fitting = [row._replace(told=shown[row.client_id]) for row in page.rows if row.client_id in shown]
        return _json(page.listing(fitting, wanted.limit))

    async def _tell_sessions(self, wanted: SessionsWanted) -> bytes:
        page = await self._page(self._owner_sessions, wanted)
        return _json(page.listing(page.rows, wanted.limit))

    async def _page(self, question: _DirectoryQuestion, wanted: ClientsWanted | SessionsWanted) -> _Page:
        slots = self._cluster.slots.count()
        owners = list(slots)
        parts = await asyncio.gather(*(self._or_none(owner, question, wanted) for owner in owners))
        missing = [
            f"{name_of(owner)} doesn't answer" for owner, part in zip(owners, parts, strict=True) if part is None
        ]
        if homeless := SLOTS - sum(slots.values()):
            missing.append(f"{homeless} of {SLOTS} slots of client ids have no home at the moment")
        heard = [part for part in parts if part is not None]
        rows, go_on = merged(heard, _most(wanted))
        return _Page(rows, go_on, sum(part.count for part in heard), missing)

    async def _of_nodes(self, page: _Page, wanted: ClientsWanted) -> dict[bytes, bytes]:
        by_node: dict[str, list[bytes]] = {}
        for row in page.rows:
            by_node.setdefault(row.told.decode(), []).append(row.client_id)
        told = await asyncio.gather(*(self._of_node(node, ids, wanted) for node, ids in by_node.items()))
        page.missing += [
            f"{name_of(node)} doesn't answer" for node, rows in zip(by_node, told, strict=True) if rows is None
        ]
        return {client_id: shown for rows in told for client_id, shown in rows or ()}

    async def _of_node(self, node: str, client_ids: list[bytes], wanted: ClientsWanted) -> list[Shown] | None:
        """None: it doesn't answer, and nobody else can tell which of them are wanted."""
        rows: list[Shown] | None = await self._or_none(node, self._node_clients, ConnectionsPage(client_ids, wanted))
        if rows is not None or asks_the_node(wanted):
            return rows
        unheard = (ClientRow(client_id=one.decode(), node=name_of(node), heard=False) for one in client_ids)
        return [(row.client_id.encode(), _json(row)) for row in unheard]

    # As the owner of client ids. What is asked of one of them raises Refusal.

    async def _clients_of_owner(self, wanted: ClientsWanted) -> Part:
        registry, fits = self._registry, _fitting(wanted.clientid)

        async def rows_of(some: list[Placed]) -> AsyncIterator[PlacedRow]:
            async for place, client_id in sliced(some):
                holder = registry.holder(client_id)
                if holder is not None and wanted.node in (None, name_of(holder[0])) and fits(client_id):
                    yield PlacedRow(place, client_id, holder[0].encode())

        ids = in_order(registry.slots(), registry.client_ids, _after(wanted), DIRECTORY_SLICE_ROWS)
        return await part_of(ids, rows_of, _most(wanted), len(registry))

    async def _sessions_of_owner(self, wanted: SessionsWanted) -> Part:
        residents, fits = self._residents, _fitting(wanted.clientid)
        if residents is None:
            return Part([], None, 0)

        def ids_of(slot: int) -> Collection[bytes]:
            held = residents.manager.slots.get(slot)
            return () if held is None else (held.clients.keys() | held.unread.keys()) - {WILLS}

        async def rows_of(some: list[Placed]) -> AsyncIterator[PlacedRow]:
            async for place, client_id in sliced(some):
                row = self._session_row(residents, client_id) if fits(client_id) else None
                if row is not None and wanted.connected in (None, row.node is not None):
                    yield PlacedRow(place, client_id, _json(row))

        ids = in_order(list(residents.manager.slots), ids_of, _after(wanted), DIRECTORY_SLICE_ROWS)
        return await part_of(ids, rows_of, wanted.limit, len(residents))

    def _session_row(self, residents: SessionService, client_id: bytes) -> SessionRow | None:
        session, owner = residents.sessions.by_id.get(client_id), self._cluster.settings.name
        if session is not None:
            return session_row(session, owner)
        why = residents.manager.why_unread(client_id)
        return SessionRow(client_id=client_id.decode(), home=owner, unreadable=why) if why else None

    async def _client_of_owner(self, client_id: bytes) -> bytes:
        holder = self._holder(client_id)
        rows = [] if holder is None else await self._of_node(holder[0], [client_id], ClientsWanted())
        return rows[0][1] if rows else b""

    async def _session_of_owner(self, asked: OneSession) -> bytes:
        holder, residents, owner = self._holder(asked.client_id), self._residents, self._cluster.settings.name
        if residents is not None:
            session = residents.sessions.by_id.get(asked.client_id)
            if session is not None:
                return _json(shown_session(session, owner, asked.after, asked.limit))
            if why := residents.manager.why_unread(asked.client_id):
                return _json(ShownSession(client_id=asked.client_id.decode(), home=owner, unreadable=why))
        return b"" if holder is None else bytes(await self._of_holder(holder, self._node_session, asked))

    async def _kick_of_owner(self, client_id: bytes) -> bool:
        holder = self._holder(client_id)
        if holder is None:
            return False
        return bool(
            await self._of_holder(holder, self._close, HeldConnection(client_id, messages.pack_token(holder[1])))
        )

    async def _of_holder(self, holder: Holder, question: _DirectoryQuestion, asked: object) -> Any:
        try:
            return await self._ask(holder[0], question, asked, OVERVIEW_WAIT_S)
        except (LinkLost, TimeoutError):
            why = f"{name_of(holder[0])}, where the client is connected, doesn't answer"
            raise Refusal("unavailable", why) from None

    def _holder(self, client_id: bytes) -> Holder | None:
        slot, residents = slot_of(client_id), self._residents
        if not self._registry.owns(slot) or residents is None or not residents.has_loaded(slot):
            raise Refusal("unavailable", f"the client id is on its way to its new home {self._cluster.settings.name}")
        return self._registry.holder(client_id)

    # As the node of connections.

    async def _clients_of_node(self, asked: ConnectionsPage) -> list[Shown]:
        fits, node = matching_clients(asked.wanted), self._cluster.settings.name
        rows: list[Shown] = []
        now_s, wall_s = self._clock.monotonic(), self._clock.wall()
        async for client_id in sliced(asked.client_ids):
            channel = self._clients.by_id.get(client_id)
            if channel is not None and fits(channel):
                rows.append((client_id, _json(client_row(channel, node, now_s, wall_s))))
        return rows

    async def _session_of_node(self, asked: OneSession) -> bytes:
        channel = self._clients.by_id.get(asked.client_id)
        session = None if channel is None else channel.session
        if not isinstance(session, LocalSession):
            return b""
        return _json(shown_session(session, self._cluster.settings.name, asked.after, asked.limit))

    async def _close_of_node(self, held: HeldConnection) -> bool:
        return self._clients.send_away(held.client_id, messages.unpack_token(held.token))

    # Asking.

    def _question(
        self, method: str, asked: type[A], answer: Any, handler: Callable[[A], Awaitable[object]]
    ) -> _DirectoryQuestion:
        question, decode = _DirectoryQuestion(method, answer), msgspec.msgpack.Decoder(asked).decode
        question.handler = handler

        async def serve(body: bytes) -> bytes:
            return _pack(await handler(decode(body)))

        self._cluster.on_request(question.method, serve)
        return question

    async def _or_none(self, node: str, question: _DirectoryQuestion, asked: object) -> Any:
        """None: it doesn't answer."""
        try:
            return await self._ask(node, question, asked, OVERVIEW_WAIT_S)
        except (LinkLost, Refusal, TimeoutError):
            return None

    async def _ask(self, node: str, question: _DirectoryQuestion, asked: object, within_s: float) -> Any:
        """Raises LinkLost, Refusal, TimeoutError."""
        async with asyncio.timeout(within_s):
            if node == self._cluster.incarnation:
                return await question.handler(asked)
            return question.decode(await self._cluster.ask(node, question.method, _pack(asked)))


class _Page:
    def __init__(self, rows: list[PlacedRow], go_on: bytes | None, count: int, missing: list[str]) -> None:
        self.rows = rows
        self._go_on = go_on
        self._count = count
        self.missing = missing

    def listing(self, shown: list[PlacedRow], limit: int) -> Listing:
        go_on = shown[limit - 1].place if len(shown) > limit else self._go_on
        data = [msgspec.Raw(row.told) for row in shown[:limit]]
        return Listing(data=data, count=self._count, next=None if go_on is None else go_on.hex(), missing=self.missing)


def _most(wanted: ClientsWanted | SessionsWanted) -> int:
    """How many rows to ask owners for: more, if only nodes can tell which of them are wanted."""
    asks_nodes = isinstance(wanted, ClientsWanted) and asks_the_node(wanted)
    return max(wanted.limit, TOGETHER) if asks_nodes else wanted.limit


def _after(wanted: ClientsWanted | SessionsWanted) -> bytes:
    """Raises ValueError."""
    return START if wanted.after is None else bytes.fromhex(wanted.after)


def _fitting(pattern: str | None) -> Callable[[bytes], bool]:
    if pattern is None:
        return lambda client_id: True
    fits = glob(pattern)
    return lambda client_id: fits(client_id.decode())
