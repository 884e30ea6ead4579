"""Bans: clients that may not connect, however they authenticate. Bans are rows of the log; the index here makes the
check of a CONNECT a few look-ups.

Invariants: the index matches the table, also after a bootstrap. An expired ban has no effect, even while its row
exists.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
from collections.abc import Callable
from typing import Final, Self

import msgspec

from flockmq.auth.addresses import network, plain_address, plain_network
from flockmq.auth.name_patterns import glob
from flockmq.bounds import BAN_PATTERNS_MAX
from flockmq.clock import SYSTEM
from flockmq.default_callbacks import ignore
from flockmq.rlog.schema import Ban

log: Final = logging.getLogger(__name__)

CLIENT: Final = "client"
KINDS: Final = (CLIENT, "clientid", "username", "peerhost", "clientid_pattern", "username_pattern", "peerhost_net")
"""What a ban can name. In a pattern `*` matches any text and `?` one character. A network is written as 10.0.0.0/8, a
client as the JSON list ["USER NAME", "CLIENT ID", "ADDRESS"]."""

PATTERNS: Final = ("clientid_pattern", "username_pattern")
ADDRESSES: Final = ("peerhost", "peerhost_net")

Key = tuple[str, str]
Client = tuple[str, str, str]
"""(user name or "", client id, address)"""
Place = tuple[str, int, int]
"""(kind of ban, number of host bits, IP version). The kind, because an address and the network of this address alone
have rows of their own."""


class Bans:
    """A listener of the bans table. It calls `on_ban` with the key of a new ban, or with None if any ban may be new."""

    def __init__(self, now_s: Callable[[], float] = SYSTEM.wall) -> None:
        self.on_ban: Callable[[Key | None], None] = ignore
        self._now_s = now_s
        self._exact: dict[Key, Ban] = {}
        self._clients: dict[Client, Ban] = {}
        self._patterns: dict[Key, tuple[Callable[[str], bool], Ban]] = {}
        self._networks: dict[Place, dict[int, Ban]] = {}
        """Place → network address shifted right by the place's host bits → ban."""

    def __len__(self) -> int:
        networks = sum(len(some) for some in self._networks.values())
        return len(self._exact) + len(self._clients) + len(self._patterns) + networks

    def is_empty(self) -> bool:
        return not (self._exact or self._clients or self._patterns or self._networks)

    def banned(self, client_id: bytes, username: bytes | None, host: str) -> bool:
        """Whether a ban in force applies to this client id, user name or address."""
        if self.is_empty():
            return False
        client, user = client_id.decode(), "" if username is None else username.decode()
        return (
            self._holds(self._exact.get(("clientid", client)))
            or (bool(user) and self._holds(self._exact.get(("username", user))))
            or any(
                matches(client if kind == "clientid_pattern" else user) and self._holds(ban)
                for (kind, _), (matches, ban) in self._patterns.items()
                if user or kind == "clientid_pattern"
            )
            or (bool(self._clients) and self._holds(self._clients.get((user, client, network(host)))))
            or (bool(self._networks) and self._banned_host(host))
        )

    def _banned_host(self, host: str) -> bool:
        try:
            address = plain_address(host)
        except ValueError:
            return False
        number = int(address)
        return any(
            self._holds(some.get(number >> ignored))
            for (_, ignored, version), some in self._networks.items()
            if version == address.version
        )

    def _holds(self, ban: Ban | None) -> bool:
        return ban is not None and not is_over(ban, self._now_s())

    # The table's listener.

    def put(self, key: Key, value: Ban, old: Ban | None) -> None:
        """A row that this node can't read, because a newer release wrote it, is skipped and logged."""
        try:
            self._hold(key, value)
        except ValueError as error:
            log.error("the ban of %s %r isn't held: %s", *key, error)
        else:
            self.on_ban(key)

    def _hold(self, key: Key, ban: Ban) -> None:
        kind, who = key
        if kind not in KINDS:
            raise ValueError("its kind is unknown here")
        if kind in ADDRESSES:
            place, number = _place(key)
            self._networks.setdefault(place, {})[number] = ban
        elif kind in PATTERNS:
            if key not in self._patterns and len(self._patterns) >= BAN_PATTERNS_MAX:
                raise ValueError(f"there are {BAN_PATTERNS_MAX} patterns already")
            self._patterns[key] = (glob(who), ban)
        elif kind == CLIENT:
            self._clients[_client(who)] = ban
        else:
            self._exact[key] = ban

    def delete(self, key: Key, old: Ban) -> None:
        self._exact.pop(key, None)
        self._patterns.pop(key, None)
        with contextlib.suppress(ValueError):
            if key[0] == CLIENT:
                self._clients.pop(_client(key[1]), None)
            elif key[0] in ADDRESSES:
                place, number = _place(key)
                some = self._networks.get(place, {})
                some.pop(number, None)
                if not some:
                    self._networks.pop(place, None)

    def fresh(self) -> Self:
        return type(self)(self._now_s)

    def swap(self, fresh: Self) -> None:
        self._exact, self._clients = fresh._exact, fresh._clients
        self._patterns, self._networks = fresh._patterns, fresh._networks
        self.on_ban(None)

    @property
    def patterns(self) -> int:
        return len(self._patterns)


def is_over(ban: Ban, now_s: float) -> bool:
    return 0 < ban.until_s <= now_s


def normal(kind: str, who: str) -> str:
    """Convert `who` to the form that the table uses as a key. Raises ValueError."""
    if not who:
        raise ValueError("who must not be empty")
    if kind == CLIENT:
        return client_key(*_client(who))[1]
    if kind == "peerhost":
        return str(plain_address(who.partition("%")[0]))  # without the zone of a link-local IPv6 address
    if kind == "peerhost_net":
        address, slash, length = who.partition("/")
        return str(plain_network(address.partition("%")[0] + slash + length))
    return who


def client_key(username: str, client_id: str, host: str) -> Key:
    """The key of a ban of one client, named by its user name, client id and address together."""
    return CLIENT, msgspec.json.encode((username, client_id, network(host))).decode()


def one_client(key: Key) -> bytes | None:
    """The client id that the ban names, or None if the ban isn't about a single client id."""
    match key:
        case ("clientid", who):
            return who.encode()
        case (kind, who) if kind == CLIENT:
            return _client(who)[1].encode()
    return None


def _client(who: str) -> Client:
    try:
        username, client_id, host = msgspec.json.decode(who, type=Client)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError('must be ["USER NAME", "CLIENT ID", "ADDRESS"], as JSON') from None
    return username, client_id, host


def _place(key: Key) -> tuple[Place, int]:
    kind, who = key
    network = ipaddress.ip_network(who)
    ignored = network.max_prefixlen - network.prefixlen
    return (kind, ignored, network.version), int(network.network_address) >> ignored
