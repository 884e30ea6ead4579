"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the client proves that it knows the password, the broker that it has the
verifier.

    client → n,,n=USER,r=NONCE
    server ← r=NONCE+OURS,s=SALT,i=ITERATIONS
    client → c=biws,r=NONCE+OURS,p=PROOF
    server ← v=SIGNATURE

No I/O. Channel binding ("-PLUS") and an authorization identity of another user aren't supported. An unknown user gets a
challenge like any other, always with the same salt, and fails at the proof.

    verifier as stored (RFC 5803):  SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from typing import Final, NamedTuple

from flockmq.bounds import PASSWORD_MAX_BYTES, SCRAM_NAME_MAX_CHARACTERS, SCRAM_NONCE_MAX_CHARACTERS

METHOD: Final = b"SCRAM-SHA-256"
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18

_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<as>[^,]+))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)"
)
_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ITERATIONS: Final = re.compile(r"SCRAM-SHA-256\$([0-9]{1,8}):")
_VERIFIER: Final = re.compile(r"SCRAM-SHA-256\$([0-9]{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


class ScramError(Exception):
    """The client is refused. The message is for the log."""


class Verifier(NamedTuple):
    """What the log stores for a password. It isn't enough to log in."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def made(cls, password: str, iterations: int, salt: bytes | None = None) -> Verifier:
        """Make a verifier; this takes long on purpose. Raises ValueError for a password that SASLprep prohibits."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        prepared = saslprep(password, PASSWORD_MAX_BYTES).encode()
        salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))

    @classmethod
    def for_unknown_user(cls, user: str, iterations: int, secret: bytes) -> Verifier:
        """A verifier for a user that doesn't exist: the salt depends on the name only, and no proof matches."""
        salt = _hmac(secret, user.encode())[:SALT_BYTES]
        return cls(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    @classmethod
    def parse(cls, stored: str) -> Verifier:
        """Raises ValueError."""
        match = _VERIFIER.fullmatch(stored)
        if match is None:
            raise ValueError("isn't SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY")
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in match.groups()[1:])
        if not salt or len(stored_key) != 32 or len(server_key) != 32 or not 1 <= int(match[1]) <= 10_000_000:
            raise ValueError("has keys that aren't 32 bytes long, no salt, or more than 10,000,000 iterations")
        return cls(int(match[1]), salt, stored_key, server_key)

    def __str__(self) -> str:
        salt, stored_key, server_key = (base64.b64encode(part).decode() for part in self[1:])
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored_key}:{server_key}"


def iterations_of(stored: str) -> int | None:
    """The iteration count of a stored verifier; None if the text isn't one."""
    match = _ITERATIONS.match(stored)
    return None if match is None else int(match[1])


class ClientFirst(NamedTuple):
    """The client's first message. `user` is unescaped and normalized by SASLprep."""

    header: str
    bare: str
    user: str
    nonce: str

    @classmethod
    def parse(cls, data: bytes) -> ClientFirst:
        """Raises ScramError."""
        match = _FIRST.fullmatch(_text(data))
        if match is None:
            raise ScramError("the first message isn't n,,n=USER,r=NONCE without channel binding")
        if len(match["nonce"]) > SCRAM_NONCE_MAX_CHARACTERS:
            raise ScramError("the nonce is too long")
        if match["as"] not in (None, match["user"]):
            raise ScramError("it asks to act for another user")
        return cls(match["header"], match["bare"], _name(match["user"]), match["nonce"])


class ScramServer:
    """The server's side of one exchange, after the client's first message."""

    def __init__(self, first: ClientFirst, verifier: Verifier, nonce: str | None = None) -> None:
        self._first = first
        self._verifier = verifier
        self._nonce = first.nonce + (secrets.token_urlsafe(NONCE_BYTES) if nonce is None else nonce)
        salt = base64.b64encode(verifier.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={verifier.iterations}".encode()

    def finish(self, data: bytes) -> bytes:
        """Check the client's proof, and return the last message for the client. Raises ScramError."""
        match = _FINAL.fullmatch(_text(data))
        if match is None:
            raise ScramError("the last message isn't c=BINDING,r=NONCE,p=PROOF")
        if _decoded(match["binding"]) != self._first.header.encode():
            raise ScramError("the channel binding isn't the one that it began with")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise ScramError("the nonce isn't ours")
        proof = _decoded(match["proof"])
        signed = b",".join((self._first.bare.encode(), self.challenge, match["bare"].encode()))
        signature = _hmac(self._verifier.stored_key, signed)
        if len(proof) != len(signature):
            raise ScramError("the proof isn't 32 bytes long")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(_hmac(self._verifier.server_key, signed))


def saslprep(text: str, room: int) -> str:
    """SASLprep (RFC 4013) for a stored string. Raises ValueError for prohibited characters, and for a result of more
    than `room` characters. Takes up to 2 µs for each of these characters."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)  # one character may become 18
    if len(prepared) > room:
        raise ValueError(f"it has more than {room} characters (RFC 4013)")
    for character in prepared:
        if any(is_prohibited(character) for is_prohibited in _PROHIBITED):
            raise ValueError(f"U+{ord(character):04X} may not stand in a name or password (RFC 4013)")
    right_to_left = [character for character in prepared if stringprep.in_table_d1(character)]
    if right_to_left and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise ValueError("it mixes letters of both directions (RFC 3454, section 6)")
    return prepared


_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def _name(escaped: str) -> str:
    """Unescape a user name: `=2C` is a comma, `=3D` an equals sign (RFC 5802, section 5.1). Raises ScramError."""
    if re.search(r"=(?!2C|3D)", escaped):
        raise ScramError("a name with '=' that is neither =2C nor =3D")
    if len(escaped) > SCRAM_NAME_MAX_CHARACTERS:
        raise ScramError(f"a name of more than {SCRAM_NAME_MAX_CHARACTERS} characters")
    try:
        return saslprep(escaped.replace("=2C", ",").replace("=3D", "="), SCRAM_NAME_MAX_CHARACTERS)
    except ValueError as error:
        raise ScramError(str(error)) from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that isn't UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a value that isn't base64") from None


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
