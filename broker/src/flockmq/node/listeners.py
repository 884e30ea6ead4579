"""The configured listeners: bound before anything else starts, opened when the node is ready.

Invariants: if an address is in use or a certificate can't be used, the node stops with an error before it joins the
cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from flockmq import listening_sockets
from flockmq.bounds import (
    CONNECTION_BYTES,
    DESCRIPTORS_RESERVED_MAX,
    PARTIALS_MAX_BYTES,
    PARTIALS_MEMORY_SHARE,
    TLS_REFRESH_S,
    UNAUTHENTICATED_MAX_BYTES,
    UNAUTHENTICATED_MEMORY_SHARE,
)
from flockmq.config.listener_settings import (
    AnyListener,
    InetSettings,
    NamedListenerSettings,
    RatesSettings,
    SslListenerSettings,
    UnixListenerSettings,
    WsListenerSettings,
    WssListenerSettings,
    named_listeners,
)
from flockmq.config.schema import Config, MqttSettings, NodeSettings
from flockmq.config.values import Address
from flockmq.errors import AddressInUse, cannot_bind
from flockmq.session.limits import Limits
from flockmq.transport import token_bucket
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.epoll_reactor import EpollReactor
from flockmq.transport.listener import AddressFilter, Listener, Proxy
from flockmq.transport.tls_certificates import TlsCertificates


class Refreshed(Protocol):
    """Certificates that aren't a listener's, but are reloaded with those."""

    def refresh(self) -> None: ...


class ListeningSettings(NamedTuple):
    """What listeners take of a configuration. `zones` are by name, `listeners` by type and name."""

    node: NodeSettings
    zones: dict[str, MqttSettings]
    listeners: dict[str, AnyListener]


def listening_settings(config: Config) -> ListeningSettings:
    listeners = {str(named): named.settings for named in named_listeners(config.listeners)}
    return ListeningSettings(config.node, {"default": config.mqtt, **config.zones}, listeners)


class Listeners:
    """The listeners of one node. `ports` maps their names to ports; the port of a Unix socket is 0. `memory_bytes`:
    what the node may use."""

    def __init__(self, config: Config, memory_bytes: int) -> None:
        self._config = config
        self._memory_bytes = memory_bytes
        self._sockets: list[tuple[NamedListenerSettings, socket.socket]] = []
        self._reactor: EpollReactor
        self._open: list[tuple[NamedListenerSettings, OpenListener]] = []
        self._limits: Mapping[str, Limits] = {}
        self._certificates: dict[str, TlsCertificates] = {}
        self._others: tuple[Refreshed, ...] = ()

    @property
    def ports(self) -> dict[str, int]:
        return {str(named): _port(bound) for named, bound in self._sockets}

    def bind(self) -> None:
        """Raises AddressInUse, ConfigError."""
        for named in named_listeners(self._config.listeners):
            key = f"listeners.{named.type}.{named.name}"
            settings = named.settings
            if isinstance(settings, SslListenerSettings):
                self._certificates[str(named)] = TlsCertificates(key, settings)
            bound = _bind(named, f"{key}.bind")
            if any(_same_port(bound, other) for _, other in self._sockets):  # Linux reports this only at listen()
                bound.close()
                raise _in_use(named, OSError(errno.EADDRINUSE, ""))
            self._sockets.append((named, bound))

    def close(self) -> None:
        for named, bound in self._sockets:
            bound.close()
            if isinstance(named.settings.bind, Path):
                named.settings.bind.unlink(missing_ok=True)

    def open(self, reactor: EpollReactor, limits: Mapping[str, Limits]) -> None:
        """Accept clients. `limits` are by zone name, and may change later. Raises AddressInUse if another process has
        bound an address, too."""
        self._reactor, self._limits = reactor, limits
        self._limit_node(self._config.node)
        for named, bound in self._sockets:
            listener = reactor.open(self._listener(named, limits[named.settings.zone]))
            try:
                reactor.listen(listener, bound)
            except OSError as error:
                raise _in_use(named, error) from None
            self._open.append((named, listener))

    def configure(self, settings: ListeningSettings) -> None:
        """Other limits and rates. Those of a zone hold for the clients that connect from now on."""
        self._limit_node(settings.node)
        for named, listener in self._open:
            of_listener = settings.listeners[str(named)]
            changed = listener.settings
            changed.limits = self._limits[of_listener.zone]
            changed.client_rates, changed.rates = _rates(settings.zones[of_listener.zone]), _rates(of_listener)
            changed.max_connections, changed.max_conn_rate = of_listener.max_connections, of_listener.max_conn_rate
            self._reactor.configure(listener)

    def _limit_node(self, node: NodeSettings) -> None:
        reactor, memory = self._reactor, self._memory_bytes
        reactor.limit(_rates(node), node.max_conn_rate)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        reactor.share_resources(*shares(node, memory, descriptors), memory)
        reactor.router.partials.max_bytes = min(PARTIALS_MAX_BYTES, memory // PARTIALS_MEMORY_SHARE)

    def _listener(self, named: NamedListenerSettings, limits: Limits) -> Listener:
        settings = named.settings
        inet = settings if isinstance(settings, InetSettings) else None
        web = settings if isinstance(settings, WsListenerSettings | WssListenerSettings) else None
        config = self._config
        zone = config.mqtt if settings.zone == "default" else config.zones[settings.zone]
        return Listener(
            str(named),
            limits,
            client_rates=_rates(zone),
            rates=_rates(settings),
            access=None if inet is None else AddressFilter(inet.allow, inet.deny),
            max_connections=settings.max_connections,
            max_conn_rate=settings.max_conn_rate,
            proxy=None if inet is None or not inet.proxy_protocol else _proxy(inet),
            certificates=self._certificates.get(str(named)),
            path="" if web is None else web.path,
            allowed_origins=() if web is None else web.allowed_origins,
        )

    def refresh(self) -> None:
        """Reload certificates whose files have changed."""
        for certificates in (*self._certificates.values(), *self._others):
            certificates.refresh()

    @contextlib.contextmanager
    def refreshing(self, *others: Refreshed) -> Iterator[None]:
        """Inside the block, reload changed files every TLS_REFRESH_S, and at once on SIGHUP. SIGHUP never ends the
        node, even if it has no such files."""
        self._others = others
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(self._refresh_now_and_then())
        loop.add_signal_handler(signal.SIGHUP, self.refresh)
        try:
            yield
        finally:
            task.cancel()
            loop.remove_signal_handler(signal.SIGHUP)

    async def _refresh_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(TLS_REFRESH_S)
            self.refresh()


def _bind(named: NamedListenerSettings, key: str) -> socket.socket:
    settings = named.settings
    if isinstance(settings, UnixListenerSettings):
        assert settings.bind is not None, "named_listeners gives those that are on"
        return listening_sockets.bound_unix(settings.bind, int(settings.mode, 8), key)
    assert isinstance(settings.bind, Address)
    return listening_sockets.bound(settings.bind.host, settings.bind.port, key, reuseport=settings.reuseport)


def _in_use(named: NamedListenerSettings, error: OSError) -> AddressInUse:
    bind, key = named.settings.bind, f"listeners.{named.type}.{named.name}.bind"
    where = f"{bind.host}:{bind.port}" if isinstance(bind, Address) else bind
    return cannot_bind(key, where, listening_sockets.MENDS.get(key), error)


def _same_port(one: socket.socket, other: socket.socket) -> bool:
    return one.family == other.family != socket.AF_UNIX and one.getsockname() == other.getsockname()


def shares(node: NodeSettings, memory: int, descriptors: int) -> tuple[int, int, int]:
    """The limit of bytes for all unauthenticated clients, of connections, and of connections per address. There are no
    more connections than the memory of the container or machine has room for, nor so many that the node would lack file
    descriptors. Other values that aren't configured are derived from these."""
    strangers = min(UNAUTHENTICATED_MAX_BYTES, memory // UNAUTHENTICATED_MEMORY_SHARE)
    available = descriptors - min(DESCRIPTORS_RESERVED_MAX, descriptors // 2)
    have_room = min(node.max_connections, memory // CONNECTION_BYTES)
    of_address = node.max_connections_per_address or max(1, have_room // 2)
    return node.max_unauthenticated_bytes or strangers, min(have_room, available), of_address


def _proxy(inet: InetSettings) -> Proxy:
    return Proxy(AddressFilter(inet.proxy_protocol_from), inet.proxy_protocol_timeout, inet.proxy_protocol_common_name)


def _port(bound: socket.socket) -> int:
    name = bound.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def _rates(settings: RatesSettings) -> token_bucket.Rates:
    return token_bucket.Rates(
        settings.messages_rate, settings.messages_burst, settings.bytes_rate, settings.bytes_burst
    )
