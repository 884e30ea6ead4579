"""Lists, shows, and ends the clients and sessions of the whole cluster, for the REST API of any node.

    this node ─▶ a core ─▶ all owners ─▶ nodes of the connections    one page of a list
    this node ─▶ owner of the client id ─▶ node of the connection    one client or session

An owner knows where its clients are connected, and has the durable sessions. Everything else about a connection only
its node knows. Rows travel as the JSON that the REST API returns.

Invariants: a long list doesn't block the event loop, because it is made in slices. An incomplete list says so
(`missing`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from flockmq.auth.name_patterns import glob
from flockmq.bounds import DIRECTORY_SLICE_ROWS, OVERVIEW_WAIT_S, SLOTS
from flockmq.clock import Clock
from flockmq.durable.due_wills import HASH as WILLS
from flockmq.durable.session_service import SessionService
from flockmq.management.client_rows import ClientRow, ClientsWanted, Listing, SessionRow, SessionsWanted, ShownSession
from flockmq.management.view import Unavailable
from flockmq.membership.cluster import Cluster
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import name_of
from flockmq.node.connections import Connections
from flockmq.node.listing_order import START, Part, Placed, PlacedRow, in_order, merged, part_of, sliced
from flockmq.node.listing_rows import asks_the_node, client_row, matching_clients, session_row, shown_session
from flockmq.node.page_turns import PageTurns
from flockmq.routing.slots import slot_of
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc import messages
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.client_registry import ClientRegistry, Holder
from flockmq.session_rpc.messages import Admission, AttachError, nonce_of

A = TypeVar("A")

TOGETHER: Final = 1000
"""How many client ids one page asks nodes about, if only the nodes can tell which clients match."""

Shown = tuple[bytes, bytes]
"""(client id, its row as JSON)"""

_json: Final = msgspec.json.Encoder().encode
_pack: Final = msgspec.msgpack.Encoder().encode


class OneSession(msgspec.Struct, frozen=True, array_like=True):
    """A request to show one session, with at most `limit` subscriptions after the first `after`."""

    client_id: bytes
    after: int
    limit: int


class ConnectionsPage(msgspec.Struct, frozen=True, array_like=True):
    """A request to a node to show those of its connections that match `wanted`."""

    client_ids: list[bytes]
    wanted: ClientsWanted


class HeldConnection(msgspec.Struct, frozen=True, array_like=True):
    """A request to a node to close this connection."""

    client_id: bytes
    token: bytes


class _AdminRequest:
    """One kind of request to another node: its method, its handler, and the decoder of its answer."""

    def __init__(self, method: str, answer: Any) -> None:
        self.method = f"directory.{method}"
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(answer).decode
        self.handler: Callable[[Any], Awaitable[object]]


class ClientAdmin:
    """A `management.view.ClientsView` and `SessionsView`. `answering_core` returns the core that makes pages.
    `session_service` is None if this node isn't a core."""

    def __init__(
        self,
        cluster: Cluster,
        answering_core: Callable[[], str],
        owners: SessionRpcClient,
        registry: ClientRegistry,
        clients: Connections,
        session_service: SessionService | None,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._answering_core = answering_core
        self._owners = owners
        self._registry = registry
        self._clients = clients
        self._session_service = session_service
        self._clock = clock
        self._turns = PageTurns()
        self._clients_page = self._request("clients", ClientsWanted, bytes, self._list_clients)
        self._sessions_page = self._request("sessions", SessionsWanted, bytes, self._list_sessions)
        self._owner_clients = self._request("home_clients", ClientsWanted, Part, self._clients_of_owner)
        self._owner_sessions = self._request("home_sessions", SessionsWanted, Part, self._sessions_of_owner)
        self._one_client = self._request("client", bytes, bytes, self._client_of_owner)
        self._one_session = self._request("session", OneSession, bytes, self._session_of_owner)
        self._kick = self._request("kick", bytes, bool, self._kick_of_owner)
        self._node_clients = self._request("node_clients", ConnectionsPage, list[Shown], self._clients_of_node)
        self._node_session = self._request("node_session", OneSession, bytes, self._session_of_node)
        self._close = self._request("close", HeldConnection, bool, self._close_of_node)

    # Called by management. All raise Unavailable.

    async def clients(self, wanted: ClientsWanted) -> bytes:
        """Raises ValueError for invalid filters."""
        matching_clients(wanted)
        _after(wanted)
        async with self._turns.turn():
            return bytes(await self._ask_node(self._answering_core(), self._clients_page, wanted))

    async def sessions(self, wanted: SessionsWanted) -> bytes:
        """Raises ValueError for invalid filters."""
        _after(wanted)
        async with self._turns.turn():
            return bytes(await self._ask_node(self._answering_core(), self._sessions_page, wanted))

    async def client(self, client_id: str) -> bytes:
        """The client's row; b"" if it isn't connected."""
        raw = client_id.encode()
        return bytes(await self._of_owner(raw, self._one_client, raw))

    async def session(self, client_id: str, after: int, limit: int) -> bytes:
        """The client's session, durable or clean; b"" if there is none."""
        raw = client_id.encode()
        return bytes(await self._of_owner(raw, self._one_session, OneSession(raw, after, limit)))

    async def kick(self, client_id: str) -> bool:
        """Disconnect the client. Returns False if it isn't connected."""
        raw = client_id.encode()
        return bool(await self._of_owner(raw, self._kick, raw))

    async def end_session(self, client_id: str) -> bool:
        """Disconnect the client, then end its session. The session is ended by an attach for a clean session that is
        detached at once; this also ends a session that can't be read. Returns False if there was neither connection nor
        session."""
        was_connected = False
        with contextlib.suppress(Unavailable):
            was_connected = await self.kick(client_id)
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        raw, request = client_id.encode(), self._clients.registrations.of_nobody()
        self._owners.attach(raw, request, partial(self._ended, raw, nonce_of(request), answered))
        return await answered or was_connected

    def _ended(
        self, client_id: bytes, nonce: bytes, answered: asyncio.Future[bool], answer: Admission | AttachError
    ) -> None:
        if isinstance(answer, Admission):  # It reads as a CONNECT that was refused: a will that is held back stays so.
            self._owners.detach(client_id, answer.token, nonce=nonce)
        if answered.done():
            return
        if isinstance(answer, Admission):
            answered.set_result(not answer.absent)
        else:
            answered.set_exception(Unavailable(str(answer)))

    async def _of_owner(self, client_id: bytes, request: _AdminRequest, asked: object) -> Any:
        owner = self._owners.owner(slot_of(client_id))
        if not owner:
            raise Unavailable("the client id has no owner at the moment")
        return await self._ask_node(owner, request, asked)

    async def _ask_node(self, node: str, request: _AdminRequest, asked: object) -> Any:
        try:
            return await self._ask(node, request, asked, 3 * OVERVIEW_WAIT_S)
        except (LinkLost, TimeoutError):
            raise Unavailable(f"{name_of(node) or 'a core'} doesn't answer") from None
        except Refusal as refused:
            raise Unavailable(str(refused)) from None

    # On the core that makes pages.

    async def _list_clients(self, wanted: ClientsWanted) -> bytes:
        page = await self._page(self._owner_clients, wanted)
        shown = await self._of_nodes(page, wanted)
        fitting = [row._replace(value=shown[row.client_id]) for row in page.rows if row.client_id in shown]
        return _json(page.listing(fitting, wanted.limit))

    async def _list_sessions(self, wanted: SessionsWanted) -> bytes:
        page = await self._page(self._owner_sessions, wanted)
        return _json(page.listing(page.rows, wanted.limit))

    async def _page(self, request: _AdminRequest, wanted: ClientsWanted | SessionsWanted) -> _Page:
        slots = self._cluster.slots.count()
        owners = list(slots)
        parts = await asyncio.gather(*(self._or_none(owner, request, wanted) for owner in owners))
        missing = [
            f"{name_of(owner)} doesn't answer" for owner, part in zip(owners, parts, strict=True) if part is None
        ]
        if homeless := SLOTS - sum(slots.values()):
            missing.append(f"{homeless} of {SLOTS} slots of client ids have no owner at the moment")
        heard = [part for part in parts if part is not None]
        rows, go_on = merged(heard, _most(wanted))
        return _Page(rows, go_on, sum(part.count for part in heard), missing)

    async def _of_nodes(self, page: _Page, wanted: ClientsWanted) -> dict[bytes, bytes]:
        by_node: dict[str, list[bytes]] = {}
        for row in page.rows:
            by_node.setdefault(row.value.decode(), []).append(row.client_id)
        answers = await asyncio.gather(*(self._of_node(node, ids, wanted) for node, ids in by_node.items()))
        page.missing += [
            f"{name_of(node)} doesn't answer" for node, rows in zip(by_node, answers, strict=True) if rows is None
        ]
        return {client_id: shown for rows in answers for client_id, shown in rows or ()}

    async def _of_node(self, node: str, client_ids: list[bytes], wanted: ClientsWanted) -> list[Shown] | None:
        """The rows of these clients. None if the node doesn't answer and only it can tell which clients match."""
        rows: list[Shown] | None = await self._or_none(node, self._node_clients, ConnectionsPage(client_ids, wanted))
        if rows is not None or asks_the_node(wanted):
            return rows
        unheard = (ClientRow(client_id=one.decode(), node=name_of(node), heard=False) for one in client_ids)
        return [(row.client_id.encode(), _json(row)) for row in unheard]

    # On the owner of client ids. Requests about one client id raise Refusal.

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
        session_service, fits = self._session_service, _fitting(wanted.clientid)
        if session_service is None:
            return Part([], None, 0)

        def ids_of(slot: int) -> Collection[bytes]:
            held = session_service.manager.slots.get(slot)
            return () if held is None else (held.clients.keys() | held.unread.keys()) - {WILLS}

        async def rows_of(some: list[Placed]) -> AsyncIterator[PlacedRow]:
            async for place, client_id in sliced(some):
                row = self._session_row(session_service, client_id) if fits(client_id) else None
                if row is not None and wanted.connected in (None, row.node is not None):
                    yield PlacedRow(place, client_id, _json(row))

        ids = in_order(list(session_service.manager.slots), ids_of, _after(wanted), DIRECTORY_SLICE_ROWS)
        return await part_of(ids, rows_of, wanted.limit, len(session_service))

    def _session_row(self, session_service: SessionService, client_id: bytes) -> SessionRow | None:
        session, owner = session_service.sessions.by_id.get(client_id), self._cluster.settings.name
        if session is not None:
            return session_row(session, owner)
        why = session_service.manager.why_unread(client_id)
        return SessionRow(client_id=client_id.decode(), home=owner, unreadable=why) if why else None

    async def _client_of_owner(self, client_id: bytes) -> bytes:
        holder = self._holder(client_id)
        rows = [] if holder is None else await self._of_node(holder[0], [client_id], ClientsWanted())
        return rows[0][1] if rows else b""

    async def _session_of_owner(self, asked: OneSession) -> bytes:
        holder, session_service, owner = (
            self._holder(asked.client_id),
            self._session_service,
            self._cluster.settings.name,
        )
        if session_service is not None:
            session = session_service.sessions.by_id.get(asked.client_id)
            if session is not None:
                return _json(shown_session(session, owner, asked.after, asked.limit))
            if why := session_service.manager.why_unread(asked.client_id):
                return _json(ShownSession(client_id=asked.client_id.decode(), home=owner, unreadable=why))
        return b"" if holder is None else bytes(await self._of_holder(holder, self._node_session, asked))

    async def _kick_of_owner(self, client_id: bytes) -> bool:
        holder = self._holder(client_id)
        if holder is None:
            return False
        return bool(
            await self._of_holder(holder, self._close, HeldConnection(client_id, messages.pack_token(holder[1])))
        )

    async def _of_holder(self, holder: Holder, request: _AdminRequest, asked: object) -> Any:
        try:
            return await self._ask(holder[0], request, asked, OVERVIEW_WAIT_S)
        except (LinkLost, TimeoutError):
            why = f"{name_of(holder[0])}, where the client is connected, doesn't answer"
            raise Refusal("unavailable", why) from None

    def _holder(self, client_id: bytes) -> Holder | None:
        slot, session_service = slot_of(client_id), self._session_service
        if not self._registry.owns(slot) or session_service is None or not session_service.has_loaded(slot):
            raise Refusal("unavailable", f"the client id is on its way to its new owner {self._cluster.settings.name}")
        return self._registry.holder(client_id)

    # On the node of the connections.

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

    # Sending requests.

    def _request(
        self, method: str, asked: type[A], answer: Any, handler: Callable[[A], Awaitable[object]]
    ) -> _AdminRequest:
        request, decode = _AdminRequest(method, answer), msgspec.msgpack.Decoder(asked).decode
        request.handler = handler

        async def serve(body: bytes) -> bytes:
            return _pack(await handler(decode(body)))

        self._cluster.on_request(request.method, serve)
        return request

    async def _or_none(self, node: str, request: _AdminRequest, asked: object) -> Any:
        """None if the node doesn't answer."""
        try:
            return await self._ask(node, request, asked, OVERVIEW_WAIT_S)
        except (LinkLost, Refusal, TimeoutError):
            return None

    async def _ask(self, node: str, request: _AdminRequest, asked: object, within_s: float) -> Any:
        """Raises LinkLost, Refusal, TimeoutError."""
        async with asyncio.timeout(within_s):
            if node == self._cluster.incarnation:
                return await request.handler(asked)
            return request.decode(await self._cluster.ask(node, request.method, _pack(asked)))


class _Page:
    def __init__(self, rows: list[PlacedRow], go_on: bytes | None, count: int, missing: list[str]) -> None:
        self.rows = rows
        self._go_on = go_on
        self._count = count
        self.missing = missing

    def listing(self, shown: list[PlacedRow], limit: int) -> Listing:
        go_on = shown[limit - 1].place if len(shown) > limit else self._go_on
        data = [msgspec.Raw(row.value) for row in shown[:limit]]
        return Listing(data=data, count=self._count, next=None if go_on is None else go_on.hex(), missing=self.missing)


def _most(wanted: ClientsWanted | SessionsWanted) -> int:
    """How many rows to ask each owner for. It is more if only the nodes can tell which clients match."""
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
