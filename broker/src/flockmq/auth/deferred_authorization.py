"""Why a client might publish a will or a delayed message: judged when that is due, and the client may be gone.

The node that takes the message writes a warrant beside it: as whom the client was let in, and what allowed the message.
When it is due, nobody can ask the client's token or a plugin, so what these allowed stands. Bans, the row of the user
that was let in, and rules of the log and the file are looked up as they are then. Another service is asked if nobody
else has to wait for it; while it doesn't answer, what it said before stands.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

import msgspec

from flockmq.auth.authorizer import Authorizer
from flockmq.auth.bans import Bans
from flockmq.auth.rules import Rules, Subject
from flockmq.auth.user_revocation import Lookup, is_disabled
from flockmq.mqtt.topics import unwrap
from flockmq.protocol.peer import ClientCertificate, PeerInfo
from flockmq.protocol.principal import Principal
from flockmq.protocol.verdicts import ALLOWED, DENIED, PUBLISH

log: Final = logging.getLogger(__name__)

KNOWN: Final = 1
"""Somebody knows why. Without it only bans are looked at."""
SUPERUSER: Final = 2
ITS_OWN: Final = 4
"""Rules of the client's own, in a token or an answer, or a plugin."""
BY_NAME: Final = 8
"""It was let in as the user in the log that has its user name."""
BY_CLIENT_ID: Final = 16
"""The same by its client id."""
RETAIN: Final = 32
"""Of the message as the client said it."""


class Said(NamedTuple):
    """A message, as far as rules look at it. `topic`: perhaps behind `$delayed/…`."""

    topic: bytes
    qos: int
    retain: bool


class Warrant(msgspec.Struct, frozen=True, array_like=True):
    """`topic`: as the client said it, without `$delayed/…`; b"": as the message has it."""

    client_id: bytes
    user: bytes
    address: str = ""
    why: int = 0
    topic: bytes = b""
    common_name: str | None = None

    def said(self, topic: bytes, qos: int, retain: bool) -> Said:
        """By the client, where this is what became of it."""
        return Said(self.topic or topic, qos, bool(self.why & RETAIN) if self.why & KNOWN else retain)

    def peer(self) -> PeerInfo:
        certificate = None if self.common_name is None else ClientCertificate(self.common_name, "")
        return PeerInfo(self.address, 0, "", certificate=certificate)

    def subject(self) -> Subject:
        return Subject(self.client_id.decode(), self.user.decode(), self.address, self.common_name)


encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Warrant).decode


def decoded(raw: bytes, client_id: bytes, user: bytes | None) -> Warrant:
    """A warrant as it is stored. b"", or what can't be read: it says only whose the message is."""
    if raw:
        try:
            return _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("why client %r was allowed something can't be read: %s", client_id.decode(), error)
    return Warrant(client_id, user or b"")


class Warrants:
    """Makes warrants, and judges by them."""

    def __init__(self, bans: Bans, user: Lookup, authorizer: Authorizer) -> None:
        self._bans = bans
        self._user = user
        self._authorizer = authorizer

    def made(
        self, client_id: bytes, principal: Principal, peer: PeerInfo, said: Said, published: bytes, *, by_plugin: bool
    ) -> Warrant:
        """The warrant for what the client said, of which a message to the topic `published` was made; b"": later."""
        topic = unwrap(said.topic)[1]
        common_name = None if peer.certificate is None else peer.certificate.common_name
        known = Warrant(client_id, principal.username, peer.host, KNOWN, common_name=common_name)
        why = KNOWN | (RETAIN if said.retain else 0) | _standing(principal)
        rules = principal.rules
        if by_plugin or (
            isinstance(rules, Rules) and rules.decide(known.subject(), PUBLISH, topic, said.qos, said.retain)
        ):
            why |= ITS_OWN
        is_as_said = unwrap(published)[1] == topic
        return msgspec.structs.replace(known, why=why, topic=b"" if is_as_said else topic)

    def judge(self, warrant: Warrant, said: Said) -> int:
        """ALLOWED, DENIED, or ASKED: then `still_may`."""
        client_id, why = warrant.client_id, warrant.why
        if (client_id or warrant.user) and self._bans.banned(client_id, warrant.user, warrant.address):
            return DENIED
        if not why & KNOWN:
            return ALLOWED
        is_superuser = bool(why & SUPERUSER)
        if why & (BY_NAME | BY_CLIENT_ID):
            user = self._user((warrant.user if why & BY_NAME else client_id).decode())
            if user is None or is_disabled(user):
                return DENIED
            is_superuser = is_superuser and user.is_superuser
        if is_superuser or why & ITS_OWN:
            return ALLOWED
        return self._authorizer.judge(warrant.subject(), *_action(said))

    async def still_may(self, warrant: Warrant, said: Said) -> bool:
        """Ask the services that must be asked."""
        return await self._authorizer.still_may(warrant.subject(), *_action(said))


def _action(said: Said) -> tuple[int, bytes, int, bool]:
    return PUBLISH, unwrap(said.topic)[1], said.qos, said.retain


def _standing(principal: Principal) -> int:
    why = SUPERUSER if principal.superuser else 0
    if not principal.user_id:
        return why
    return why | (BY_NAME if principal.user_id == principal.username else BY_CLIENT_ID)
