"""Where other nodes dial this one: a listening port, and connections whose handshake isn't over.

What always holds: strangers cost themselves only. At most LINK_HANDSHAKES_MAX unproven connections are kept; where
there is one more the oldest goes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from flockmq import bounds, tasks
from flockmq.membership.handshake import HandshakeListener
from flockmq.membership.link import PEER_CLOSED, Link, LinkOwner, because
from flockmq.membership.link_certificates import LinkCertificates, tls_options
from flockmq.membership.tunnel import Tunnel

log: Final = logging.getLogger(__name__)

Bind = Callable[[str, int], Awaitable[socket.socket]]
"""A listening socket at an address. Raises OSError."""


class LinkListener:
    """`handshake` makes this node's side of a new one."""

    def __init__(
        self,
        owner: LinkOwner,
        handshake: Callable[[], HandshakeListener],
        certificates: LinkCertificates | None,
        bind: Bind | None,
    ) -> None:
        self.port = 0
        """0: it listens nowhere."""
        self.is_leaving = False
        self.unproven: dict[Link, asyncio.Task[None]] = {}
        """Accepted connections whose handshake isn't over."""
        self.refused = 0
        """Since it was said last."""
        self._owner = owner
        self._handshake = handshake
        self._certificates = certificates
        self._bind = bind or bound
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._refusal_logged_at = -1.0

    async def listen(self, host: str, port: int) -> int:
        """Accept links; returns the port. Raises OSError when it can't be bound."""
        self._socket = await self._bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._task = tasks.vital(self._accept(self._socket), "cluster-accept")
        return self.port

    async def stop(self) -> None:
        """Accept no more, and turn those away that aren't proven."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        for link in list(self.unproven):
            self._turn_away(link, "this node leaves")
        self.is_leaving = True

    def welcome(self, tunnel: Tunnel) -> None:
        """A link through a node that is proven, which bounds how many there are."""
        tunnel.start(self._accepted())

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("a cluster link couldn't be accepted: %s", error)
                await asyncio.sleep(bounds.LINK_REDIAL_MIN_S)
                continue
            if len(self.unproven) >= bounds.LINK_HANDSHAKES_MAX:
                oldest = next(iter(self.unproven))
                self._turn_away(oldest, f"more than {bounds.LINK_HANDSHAKES_MAX} handshakes at once")
            link = self._accepted()
            link.address = f"{address[0]}:{address[1]}"
            self.unproven[link] = asyncio.create_task(self._welcome(link, connection))

    async def _welcome(self, link: Link, connection: socket.socket) -> None:
        """TLS, if links have it, before anything else; what a stranger may cost is a place and its time."""
        certificates = self._certificates
        options = tls_options(None if certificates is None else certificates.listening)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: link, connection, **options)
        except (OSError, asyncio.CancelledError) as error:
            if not link.closed.done():
                link.close(because(error))
                link.connection_lost(None)

    def _accepted(self) -> Link:
        return Link(self._owner, self._handshake(), self._handshake_over)

    def _turn_away(self, link: Link, reason: str) -> None:
        link.close(reason)
        self.unproven[link].cancel()

    def _handshake_over(self, link: Link) -> None:
        self.unproven.pop(link, None)
        if link.up:
            return
        if link.reason == PEER_CLOSED or self.is_leaving:
            log.info("no cluster link from %s: %s", link.address, link.reason)  # this node itself, or a probe
            return
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._refusal_logged_at >= 1.0:
            log.warning("refused %d cluster link(s), the last from %s: %s", self.refused, link.address, link.reason)
            self.refused, self._refusal_logged_at = 0, now


async def bound(host: str, port: int) -> socket.socket:
    """A listening socket; no host: on all addresses. Raises OSError."""
    if host:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = infos[0]
        listening = socket.create_server(address[:2], family=family)
    elif socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listening = socket.create_server(("", port))
    listening.setblocking(False)
    return listening
