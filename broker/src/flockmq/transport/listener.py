"""One listener: its socket, who may come by it, and what becomes of an accepted descriptor.

What always holds: who is turned away, for the address or the number, cost no more than the accept; who comes too fast
waits in the kernel's backlog.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from flockmq.session.limits import Limits
from flockmq.transport.address_filter import AddressFilter
from flockmq.transport.connection import Connection
from flockmq.transport.filtered_connection import FilteredConnection
from flockmq.transport.metered_connection import MeteredConnection
from flockmq.transport.rate_limit import SharedMeter
from flockmq.transport.tls_certificates import TlsCertificates
from flockmq.transport.token_bucket import Bucket, Rates

if TYPE_CHECKING:
    from flockmq.transport.epoll_reactor import EpollReactor


class Proxy:
    """The load balancers before a listener: `peers` are their addresses. `timeout_s`: how long the PROXY header may
    take; `names_count`: a common name in it is believed.
    """

    def __init__(self, peers: AddressFilter, timeout_s: float = 3.0, names_count: bool = False) -> None:
        self.peers = peers
        self.timeout_s = timeout_s
        self.names_count = names_count


class Listener:
    """`name` is `tcp:default`; `limits` and `client_rates` are its zone's, `meters` what all its clients share.

    `path`: of the WebSocket, "": it is none; `allowed_origins`: of pages, empty: its own.
    `socket` None: descriptors come from elsewhere (`EpollReactor.adopt`). `is_deaf`: it accepts nobody for the moment.
    """

    def __init__(
        self,
        engine: EpollReactor,
        name: str,
        limits: Limits,
        *,
        client_rates: Rates | None = None,
        rates: Rates | None = None,
        access: AddressFilter | None = None,
        max_connections: int = 1_000_000,
        max_conn_rate: float = 0.0,
        proxy: Proxy | None = None,
        certificates: TlsCertificates | None = None,
        path: str = "",
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        now_s = engine.router.now_s
        self.engine = engine
        self.name = name
        self.limits = limits
        self.client_rates: Rates = client_rates or Rates()
        self.meters: list[SharedMeter] = engine.meters(rates or Rates())
        self.access: AddressFilter = access or AddressFilter()
        self.max_connections = max_connections
        self.conn_rate: Bucket | None = Bucket(max_conn_rate, 0.0, now_s) if max_conn_rate > 0.0 else None
        self.proxy = proxy
        self.certificates = certificates
        self.path = path
        self.allowed_origins = tuple(origin.lower() for origin in allowed_origins)
        self.connections: int = 0
        self.is_deaf: bool = False
        self.socket: socket.socket | None = None
        self.family: int = socket.AF_INET
        self.is_filtered: bool = proxy is not None or certificates is not None or bool(path)
        self.is_metered: bool = bool(self.meters) or not self.client_rates.are_off()

    def connection(self, fd: int) -> Connection:
        if self.is_filtered:
            return FilteredConnection(self, fd)
        if self.is_metered:
            return MeteredConnection(self, fd)
        return Connection(self, fd)

    def turns_away(self, host: str) -> str:
        """Why a client from this address can't come, or ""."""
        if self.connections >= self.max_connections:
            return f"{self.name}: max_connections of {self.max_connections} reached"
        if self.proxy is not None and not self.proxy.peers.admits(host):
            return f"{self.name}: {host} isn't in proxy_protocol_from"
        return "" if self.access.admits(host) else f"{self.name}: {host} isn't allowed"
