"""Accepts links from other nodes: a listening port, and the connections whose handshake isn't over.

Invariant: at most LINK_HANDSHAKES_MAX unauthenticated connections are kept; a further one closes the oldest.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from flockmq import bounds, tasks
from flockmq.listening_sockets import ALL
from flockmq.membership.handshake import HandshakeListener
from flockmq.membership.link import PEER_CLOSED, Link, LinkOwner, because
from flockmq.membership.link_certificates import LinkCertificates, tls_options
from flockmq.membership.tunnel import Tunnel

log: Final = logging.getLogger(__name__)

Bind = Callable[[str, int], Awaitable[socket.socket]]
"""Creates a listening socket at an address. Raises OSError."""


class LinkListener:
    """`handshake` creates this node's side of a handshake."""

    def __init__(
        self,
        owner: LinkOwner,
        handshake: Callable[[], HandshakeListener],
        certificates: LinkCertificates | None,
        bind: Bind | None,
    ) -> None:
        self.port = 0
        """0: it doesn't listen."""
        self.is_leaving = False
        """This node leaves the cluster: it sends a goodbye on every link, and each link ends after its data is sent."""
        self.unauthenticated: dict[Link, asyncio.Task[None]] = {}
        """Accepted connections whose handshake isn't over."""
        self.refused = 0
        """Refused links since the last log line about them."""
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
        await tasks.end(self._task)
        if self._socket is not None:
            self._socket.close()
        for link in list(self.unauthenticated):
            self._reject(link, "this node leaves")
        self.is_leaving = True

    def accept_tunnel(self, tunnel: Tunnel) -> None:
        """Accept a link over a tunnel. It comes through an authenticated node, which bounds the number of tunnels."""
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
            if len(self.unauthenticated) >= bounds.LINK_HANDSHAKES_MAX:
                oldest = next(iter(self.unauthenticated))
                self._reject(oldest, f"more than {bounds.LINK_HANDSHAKES_MAX} handshakes at once")
            link = self._accepted()
            link.address = f"{address[0]}:{address[1]}"
            self.unauthenticated[link] = asyncio.create_task(self._start_link(link, connection))

    async def _start_link(self, link: Link, connection: socket.socket) -> None:
        """Do the TLS handshake first, if links use TLS. An unauthenticated peer costs only one place in the list and
        its time."""
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

    def _reject(self, link: Link, reason: str) -> None:
        link.close(reason)
        self.unauthenticated[link].cancel()

    def _handshake_over(self, link: Link) -> None:
        self.unauthenticated.pop(link, None)
        if link.up:
            return
        if link.reason == PEER_CLOSED or self.is_leaving:
            log.info(
                "no cluster link from %s: %s", link.address, link.reason
            )  # this node dialled itself, or it is a probe
            return
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._refusal_logged_at >= 1.0:
            log.warning("refused %d cluster link(s), the last from %s: %s", self.refused, link.address, link.reason)
            self.refused, self._refusal_logged_at = 0, now


async def bound(host: str, port: int) -> socket.socket:
    """A listening socket; an empty host, or `::`, means all addresses, of IPv4 too. Raises OSError."""
    if host not in ("", ALL):
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = infos[0]
        listening = socket.create_server(address[:2], family=family)
    elif socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listening = socket.create_server(("", port))
    listening.setblocking(False)
    return listening
