"""The keys of listeners (`[listeners.tcp.default]`), with types, bounds and defaults; and rates, which nodes and zones
have, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from flockmq.config.values import Address, ByteRate, Count, Kind, Network, Rate, Secret

UrlPath = Annotated[
    str, Meta(pattern=r"^/[!-~]*\Z", max_length=256, description="a path that begins with /, of at most 256 characters")
]
HostName = Annotated[
    str,
    Meta(
        pattern=r"^(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\Z",
        description="a host's name, for example mqtt.example.com or *.example.com",
    ),
]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+)\Z",
        max_length=256,
        description="a page's origin, scheme, host and port alone, for example https://app.example.com; or * for all",
    ),
]
Mode = Annotated[str, Meta(pattern=r"^0?[0-7]{3}\Z", description='a mode as chmod takes it, for example "0660"')]
Some = Annotated[float, Meta(ge=0.1, le=3600.0), Kind.DURATION]


class RatesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of reading. The broker reads a client above its rate more slowly, but never disconnects it. 0 means no
    limit.

    A burst is the amount that may come at once after a pause; 0 means that of one second.
    """

    messages_rate: Rate = 0.0
    messages_burst: Rate = 0.0
    bytes_rate: ByteRate = 0.0
    bytes_burst: Annotated[float, Meta(ge=0.0, le=1e12), Kind.SIZE] = 0.0


class ListenerSettings(RatesSettings, frozen=True, kw_only=True):
    """Keys of listeners of all types. The rates apply to all clients of the listener together."""

    zone: str = "default"
    max_connections: Count = 1_000_000
    max_conn_rate: Rate = 0.0


class InetSettings(ListenerSettings, frozen=True, kw_only=True):
    bind: Address | None
    """None ("" in the file) turns this listener off."""
    reuseport: bool = False
    """Other processes of this user may listen there, too: the kernel spreads the clients."""
    allow: tuple[Network, ...] = ()
    """Addresses of clients, and of load balancers if there are any. Empty: all that `deny` doesn't name."""
    deny: tuple[Network, ...] = ()
    proxy_protocol: bool = False
    """A load balancer sends the client's address (PROXY protocol, version 1 or 2). Connections without it are
    refused."""
    proxy_protocol_from: tuple[Network, ...] = ()
    """The addresses of the load balancers. No other address may connect."""
    proxy_protocol_common_name: bool = False
    """Trust the common name that the load balancer sends as that of the client's certificate."""
    proxy_protocol_timeout: Some = 3.0

    def __post_init__(self) -> None:
        if self.proxy_protocol and not self.proxy_protocol_from:
            raise ValueError(
                "proxy_protocol = true needs proxy_protocol_from: the networks of the load balancers, which alone may "
                'say who a client is; for example proxy_protocol_from = ["10.0.0.0/24"]'
            )
        if self.proxy_protocol and self.allow and not _overlap(self.proxy_protocol_from, self.allow):
            raise ValueError(
                "allow names no load balancer of proxy_protocol_from, so nobody could come in: it judges both the load "
                "balancer and the client that it names; add the networks of proxy_protocol_from to it"
            )
        if not self.proxy_protocol and (self.proxy_protocol_from or self.proxy_protocol_common_name):
            raise ValueError("proxy_protocol_from and proxy_protocol_common_name need proxy_protocol = true")


def _overlap(some: tuple[Network, ...], others: tuple[Network, ...]) -> bool:
    """Whether the two lists share any address."""
    return any(one.overlaps(other) for one in some for other in others if one.version == other.version)


class TcpListenerSettings(InetSettings, frozen=True, kw_only=True):
    pass


class ServerNameSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Another certificate, for clients that ask for this host by SNI."""

    host: HostName
    """`mqtt.example.com`, or `*.example.com`."""
    certfile: Path
    keyfile: Path


class SslListenerSettings(InetSettings, frozen=True, kw_only=True):
    certfile: Path
    """PEM: the server's certificate, then its chain. The broker reloads all these files when they change."""
    keyfile: Path
    password: Secret | None = None
    """The password of the key."""
    password_file: Path | None = None
    cacertfile: Path | None = None
    """PEM: the authorities that sign clients' certificates."""
    crlfile: Path | None = None
    """PEM: certificate revocation lists, one of each authority of the chain."""
    verify: Literal["none", "peer"] = "none"
    fail_if_no_peer_cert: bool = False
    versions: tuple[Literal["tlsv1.2", "tlsv1.3"], ...] = ("tlsv1.2", "tlsv1.3")
    ciphers: str = ""
    """Cipher list for TLS 1.2, in OpenSSL's syntax. Empty: OpenSSL's default."""
    sni: tuple[ServerNameSettings, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verify == "peer" and self.cacertfile is None:
            raise ValueError("verify = peer needs a cacertfile: who signs clients' certificates")
        if self.verify == "none" and (self.fail_if_no_peer_cert or self.crlfile is not None):
            raise ValueError("fail_if_no_peer_cert and crlfile need verify = peer")
        if not self.versions:
            raise ValueError("versions must name tlsv1.2, tlsv1.3 or both")


class WsListenerSettings(InetSettings, frozen=True, kw_only=True):
    path: UrlPath = "/mqtt"
    allowed_origins: tuple[Origin, ...] = ()
    """Origins of web pages whose scripts may connect. Empty: only pages of the listener's own host and port."""


class WssListenerSettings(SslListenerSettings, frozen=True, kw_only=True):
    path: UrlPath = "/mqtt"
    allowed_origins: tuple[Origin, ...] = ()


class UnixListenerSettings(ListenerSettings, frozen=True, kw_only=True):
    bind: Path | None
    """The path of the socket. None ("" in the file) turns this listener off."""
    mode: Mode = "0660"
    """The permissions of the socket, as for `chmod`."""


class ListenersSettings(msgspec.Struct, frozen=True, kw_only=True):
    tcp: dict[str, TcpListenerSettings] = field(
        default_factory=lambda: {"default": TcpListenerSettings(bind=Address("127.0.0.1", 1883))}
    )
    """On cores, `default` is off unless `bind` is set."""
    ssl: dict[str, SslListenerSettings] = {}
    ws: dict[str, WsListenerSettings] = {}
    wss: dict[str, WssListenerSettings] = {}
    unix: dict[str, UnixListenerSettings] = {}


AnyListener = (
    TcpListenerSettings | SslListenerSettings | WsListenerSettings | WssListenerSettings | UnixListenerSettings
)
ListenerType = Literal["tcp", "ssl", "ws", "wss", "unix"]


class NamedListenerSettings(NamedTuple):
    """One configured listener; `str()` gives `tcp:default`."""

    type: ListenerType
    name: str
    settings: AnyListener

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def named_listeners(of: ListenersSettings) -> Iterator[NamedListenerSettings]:
    """The listeners that are turned on, in the order of their types."""
    by_type: tuple[tuple[ListenerType, Mapping[str, AnyListener]], ...] = (
        ("tcp", of.tcp),
        ("ssl", of.ssl),
        ("ws", of.ws),
        ("wss", of.wss),
        ("unix", of.unix),
    )
    for type, listeners in by_type:
        for name, settings in listeners.items():
            if settings.bind is not None:
                yield NamedListenerSettings(type, name, settings)
