"""Deferred authorization: whether a will or a delayed message may still be published when it is due.

The node that accepts the message stores an authorization with it: which user the client was authenticated as, and what
allowed the message. When the message is due, its client may be gone. The broker then checks the bans, the user's row,
and the rules of the log and of the file, all as they are at that time. The client's token and plugins can't be asked
any more, so a message that they allowed stays allowed. HTTP services are asked only where no other message waits for
the answer. If a service doesn't answer, the message is published.
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
from flockmq.protocol.client import ALLOWED, DENIED, PUBLISH, ClientCertificate, PeerInfo, Principal

log: Final = logging.getLogger(__name__)

KNOWN: Final = 1
"""The other flags are valid. Without it only bans are checked."""
SUPERUSER: Final = 2
"""The client was a superuser."""
ITS_OWN: Final = 4
"""A plugin allowed the message, or the client's own rules did (from its token or an HTTP answer)."""
BY_NAME: Final = 8
"""The client was authenticated against the row in the log for its user name."""
BY_CLIENT_ID: Final = 16
"""The client was authenticated against the row in the log for its client id."""
RETAIN: Final = 32
"""The RETAIN flag of the message as the client sent it."""


class SentMessage(NamedTuple):
    """The parts of a message that rules check, as the client sent them. `topic` may begin with `$delayed/…`."""

    topic: bytes
    qos: int
    retain: bool


class StoredAuthorization(msgspec.Struct, frozen=True, array_like=True):
    """The record that is stored with a will or a delayed message."""

    client_id: bytes
    user: bytes
    address: str = ""
    why: int = 0
    """The flags above: what allowed the message."""
    topic: bytes = b""
    """The topic as the client sent it, without `$delayed/…`; b"" if the message still has that topic."""
    common_name: str | None = None

    def sent_message(self, topic: bytes, qos: int, retain: bool) -> SentMessage:
        """The message as the client sent it. The arguments are those of the message as it is now, after rewriting."""
        return SentMessage(self.topic or topic, qos, bool(self.why & RETAIN) if self.why & KNOWN else retain)

    def peer(self) -> PeerInfo:
        certificate = None if self.common_name is None else ClientCertificate(self.common_name, "")
        return PeerInfo(self.address, 0, "", certificate=certificate)

    def subject(self) -> Subject:
        return Subject(self.client_id.decode(), self.user.decode(), self.address, self.common_name)


encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredAuthorization).decode


def decoded(raw: bytes, client_id: bytes, user: bytes | None) -> StoredAuthorization:
    """Decode a stored authorization. If it is b"" or unreadable, the result only names the client and its user."""
    if raw:
        try:
            return _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("why client %r was allowed something can't be read: %s", client_id.decode(), error)
    return StoredAuthorization(client_id, user or b"")


class DeferredAuthorization:
    """Makes stored authorizations, and checks them when their messages are due."""

    def __init__(self, bans: Bans, user: Lookup, authorizer: Authorizer) -> None:
        self._bans = bans
        self._user = user
        self._authorizer = authorizer

    def make(
        self,
        client_id: bytes,
        principal: Principal,
        peer: PeerInfo,
        sent: SentMessage,
        published: bytes,
        *,
        by_plugin: bool,
    ) -> StoredAuthorization:
        """Record why the client may publish `sent`. `published` is the topic after rewriting, or b"" if it isn't
        rewritten yet. `by_plugin`: a plugin allowed it."""
        topic = unwrap(sent.topic)[1]
        common_name = None if peer.certificate is None else peer.certificate.common_name
        known = StoredAuthorization(client_id, principal.username, peer.host, KNOWN, common_name=common_name)
        why = KNOWN | (RETAIN if sent.retain else 0) | _user_flags(principal)
        rules = principal.rules
        if by_plugin or (
            isinstance(rules, Rules) and rules.decide(known.subject(), PUBLISH, topic, sent.qos, sent.retain)
        ):
            why |= ITS_OWN
        is_unchanged = unwrap(published)[1] == topic
        return msgspec.structs.replace(known, why=why, topic=b"" if is_unchanged else topic)

    def check(self, authorization: StoredAuthorization, sent: SentMessage) -> int:
        """Returns ALLOWED, DENIED, or ASKED. For ASKED call `is_still_allowed`."""
        client_id, why = authorization.client_id, authorization.why
        if (client_id or authorization.user) and self._bans.banned(
            client_id, authorization.user, authorization.address
        ):
            return DENIED
        if not why & KNOWN:
            return ALLOWED
        is_superuser = bool(why & SUPERUSER)
        if why & (BY_NAME | BY_CLIENT_ID):
            user = self._user((authorization.user if why & BY_NAME else client_id).decode())
            if user is None or is_disabled(user):
                return DENIED
            is_superuser = is_superuser and user.is_superuser
        if is_superuser or why & ITS_OWN:
            return ALLOWED
        return self._authorizer.check_offline(authorization.subject(), *_action(sent))

    async def is_still_allowed(self, authorization: StoredAuthorization, sent: SentMessage) -> bool:
        """Like `check`, but asks HTTP services too."""
        return await self._authorizer.is_still_allowed(authorization.subject(), *_action(sent))


def _action(sent: SentMessage) -> tuple[int, bytes, int, bool]:
    return PUBLISH, unwrap(sent.topic)[1], sent.qos, sent.retain


def _user_flags(principal: Principal) -> int:
    why = SUPERUSER if principal.superuser else 0
    if not principal.user_id:
        return why
    return why | (BY_NAME if principal.user_id == principal.username else BY_CLIENT_ID)
