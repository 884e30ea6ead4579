"""What is configured for one listener: who may come by it, and what stands between its sockets and MQTT."""

from __future__ import annotations

from flockmq.session.limits import Limits
from flockmq.transport.address_filter import AddressFilter
from flockmq.transport.tls_certificates import TlsCertificates
from flockmq.transport.token_bucket import Rates


class Proxy:
    """The load balancers before a listener: `peers` are their addresses. `timeout_s`: how long the PROXY header may
    take; `names_count`: a common name in it is believed.
    """

    def __init__(self, peers: AddressFilter, timeout_s: float = 3.0, names_count: bool = False) -> None:
        self.peers = peers
        self.timeout_s = timeout_s
        self.names_count = names_count


class Listener:
    """`name` is `tcp:default`; `limits` and `client_rates` are its zone's, `rates` are of all its clients together.

    `path`: of the WebSocket, "": it is none; `allowed_origins`: of pages, empty: its own. `has_layers`: something
    stands between its sockets and MQTT.
    """

    def __init__(
        self,
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
        self.name = name
        self.limits = limits
        self.client_rates: Rates = client_rates or Rates()
        self.rates: Rates = rates or Rates()
        self.access: AddressFilter = access or AddressFilter()
        self.max_connections = max_connections
        self.max_conn_rate = max_conn_rate
        self.proxy = proxy
        self.certificates = certificates
        self.path = path
        self.allowed_origins = tuple(origin.lower() for origin in allowed_origins)
        self.has_layers: bool = proxy is not None or certificates is not None or bool(path)

    def turns_away(self, host: str) -> str:
        """Why a client from this address can't come, or ""."""
        if self.proxy is not None and not self.proxy.peers.admits(host):
            return f"{self.name}: {host} isn't in proxy_protocol_from"
        return "" if self.access.admits(host) else f"{self.name}: {host} isn't allowed"
