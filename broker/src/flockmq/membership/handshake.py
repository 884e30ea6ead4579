"""How two nodes prove to each other that they have the cluster key. No I/O: bytes in, bytes out.

    dialer → listener   Hello      who I am, my nonce
    listener → dialer   Challenge  who I am, my nonce
    dialer → listener   Proof      HMAC-SHA256(key, "dialer"   · Hello · Challenge)
    listener → dialer   Proof      HMAC-SHA256(key, "listener" · Hello · Challenge)

While the key is being replaced, a listener accepts both keys, and answers with the one that the dialer proved.

The MAC covers both greetings byte for byte: both nonces, incarnations and roles, and the protocol's version. A proof
can't be replayed, because nonces are fresh, and can't be reflected, because it includes the side. The dialer proves
first, so an unauthenticated dialer gets nothing that is made with the key. A listener that refuses sends
HandshakeRefused in plain text; the dialer only logs it. The frames after the handshake are neither encrypted nor
signed: the key only keeps unauthenticated nodes out. Against an attacker who can change packets on the path, use TLS or
a network policy.

A greeting names the versions of the cluster protocol that its sender accepts: from the cluster's version
(cluster_version.py), as far as the sender knows it, to the newest that it speaks. If the two ranges don't overlap, the
listener refuses, and says which node must be upgraded. A node of the first release knows the lower end only, and
accepts only 1 there.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from flockmq.entropy import SYSTEM, Entropy
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.frames import GREETING, frame

_NONCE_BYTES: Final = 32
_ROLES: Final = frozenset({"core", "replicant", "single"})
_INCARNATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}@[0-9a-f]{8,32}")


class HandshakeError(Exception):
    """Why the peer is refused. Safe to log: it contains no secret."""


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """A node's claimed identity. `incarnation` is `name@hex`, new at each start of the process."""

    incarnation: str
    role: str


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=0):
    oldest: int
    identity: Identity
    nonce: bytes
    newest: int = 1


class Challenge(msgspec.Struct, array_like=True, frozen=True, tag=1):
    oldest: int
    identity: Identity
    nonce: bytes
    newest: int = 1


class Proof(msgspec.Struct, array_like=True, frozen=True, tag=2):
    mac: bytes


class HandshakeRefused(msgspec.Struct, array_like=True, frozen=True, tag=3):
    reason: str


_Greeting = Hello | Challenge | Proof | HandshakeRefused
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[_Greeting]] = msgspec.msgpack.Decoder(_Greeting)


def refusal(reason: str) -> bytes:
    """The frame that tells a peer why it is refused."""
    return frame(GREETING, _encode(HandshakeRefused(reason)))


class HandshakeDialer:
    """The side that connects. Send `hello()`, then pass each greeting to `receive`. Done when `peer` is set."""

    def __init__(self, key: bytes, me: Identity, version: ClusterVersion, entropy: Entropy = SYSTEM) -> None:
        self.peer: Identity | None = None
        self.newest = 0
        """The highest version that the peer speaks."""
        self.itself = False
        """This node dialled itself, because a seed is its own address. That is no error."""
        self.me = me
        self._key = key
        self._version = version
        self._hello = _encode(Hello(version.current, me, entropy.token_bytes(_NONCE_BYTES), version.newest))
        self._challenge: tuple[Identity, bytes] | None = None

    def hello(self) -> bytes:
        return frame(GREETING, self._hello)

    def receive(self, body: bytes) -> bytes:
        """Returns what to send next, maybe nothing. Raises HandshakeError."""
        greeting = _parse(body)
        if isinstance(greeting, Challenge) and self._challenge is None:
            self.newest = _check(greeting, self._version)
            if greeting.identity.incarnation == self.me.incarnation:
                self.itself = True
                raise HandshakeError("that is this node itself")
            self._challenge = (greeting.identity, body)
            return frame(GREETING, _encode(Proof(_mac(self._key, b"dialer", self._hello, body))))
        if isinstance(greeting, Proof) and self._challenge is not None and self.peer is None:
            _check_speaks(self.newest, self._version)  # it may have been raised meanwhile
            identity, challenge = self._challenge
            if not hmac.compare_digest(greeting.mac, _mac(self._key, b"listener", self._hello, challenge)):
                raise HandshakeError("it doesn't hold this cluster's key: compare the cluster key of both nodes")
            self.peer = identity
            return b""
        raise HandshakeError(f"{type(greeting).__name__} out of turn")


class HandshakeListener:
    """The side that accepts. Pass each greeting to `receive` and send what it returns. Done when `peer` is set."""

    def __init__(self, keys: Sequence[bytes], me: Identity, version: ClusterVersion, entropy: Entropy = SYSTEM) -> None:
        self.peer: Identity | None = None
        self.newest = 0
        """The highest version that the peer speaks."""
        self.me = me
        self._keys = keys
        self._version = version
        self._challenge = _encode(Challenge(version.current, me, entropy.token_bytes(_NONCE_BYTES), version.newest))
        self._hello: tuple[Identity, bytes] | None = None

    def receive(self, body: bytes) -> bytes:
        """Returns what to send next. Raises HandshakeError."""
        greeting = _parse(body)
        if isinstance(greeting, Hello) and self._hello is None:
            self.newest = _check(greeting, self._version)
            self._hello = (greeting.identity, body)
            return frame(GREETING, self._challenge)
        if isinstance(greeting, Proof) and self._hello is not None and self.peer is None:
            _check_speaks(self.newest, self._version)  # it may have been raised meanwhile
            identity, hello = self._hello
            for key in self._keys:
                if hmac.compare_digest(greeting.mac, _mac(key, b"dialer", hello, self._challenge)):
                    self.peer = identity
                    return frame(GREETING, _encode(Proof(_mac(key, b"listener", hello, self._challenge))))
            raise HandshakeError("it doesn't hold this cluster's key: compare the cluster key of both nodes")
        raise HandshakeError(f"{type(greeting).__name__} out of turn")


def check_role(peer: Identity, roles: frozenset[str]) -> None:
    """`roles`: those in the peer's certificate, or the one told by the core that relays the link. Empty: unknown.
    Raises HandshakeError."""
    role = "core" if peer.role == "single" else peer.role
    if roles and role not in roles:
        raise HandshakeError(
            f"it says that it is a {role}, and its certificate is of a {' and a '.join(sorted(roles))}: give it the "
            "certificate of its role"
        )


def _parse(body: bytes) -> _Greeting:
    try:
        greeting = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise HandshakeError("it doesn't speak the cluster protocol") from None
    if isinstance(greeting, HandshakeRefused):
        raise HandshakeError(f"it refused this node: {greeting.reason[:200]!r}")
    return greeting


def _check(greeting: Hello | Challenge, version: ClusterVersion) -> int:
    """The highest version that it speaks. Raises HandshakeError."""
    newest = max(greeting.oldest, greeting.newest)
    _check_speaks(newest, version)
    if greeting.oldest > version.newest:
        raise HandshakeError(
            f"it takes nothing below version {greeting.oldest} of the cluster protocol, and this node's release speaks "
            f"{version.newest} at most: upgrade this node"
        )
    if len(greeting.nonce) != _NONCE_BYTES:
        raise HandshakeError(f"a nonce of {len(greeting.nonce)} bytes, not {_NONCE_BYTES}")
    if greeting.identity.role not in _ROLES or not _INCARNATION.fullmatch(greeting.identity.incarnation):
        raise HandshakeError("it names no role and incarnation of this protocol")
    return newest


def _check_speaks(newest: int, version: ClusterVersion) -> None:
    if newest < version.current:
        raise HandshakeError(
            f"the cluster is at version {version.current} of its protocol, and the release of the node that isn't let "
            f"in speaks {newest} at most: upgrade it"
        )


def _mac(key: bytes, side: bytes, hello: bytes, challenge: bytes) -> bytes:
    parts = (b"flockmq cluster link", side, hello, challenge)
    return hmac.digest(key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")
