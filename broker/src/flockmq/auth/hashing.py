"""Password hashes. A stored hash names its algorithm, so the configured algorithm may change.

| algorithm | as stored |
|---|---|
| argon2id | `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH` (RFC 9106, PHC string) |
| bcrypt | `$2b$10$…` |
| pbkdf2 | `$pbkdf2-sha256$i=600000,l=32$SALT$HASH` (RFC 8018, PHC string) |

Hashing takes long on purpose: run it in the hash pool, never on the event loop.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import re
import secrets
from typing import Final

import argon2
import bcrypt

from flockmq.bounds import ARGON2_MAX_KIB, ARGON2_MAX_PASSES, BCRYPT_MAX_ROUNDS, PBKDF2_MAX_ITERATIONS
from flockmq.config.auth_settings import Argon2idSettings, BcryptSettings, HashAlgorithm, Pbkdf2Settings

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
BCRYPT_MAX_BYTES: Final = 72
_BCRYPT_CHARACTERS: Final = 53
"""Of salt and digest."""

_PBKDF2: Final = re.compile(
    r"\$pbkdf2-(sha256|sha512)\$i=([0-9]{1,8}),l=([0-9]{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_BCRYPT: Final = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_ARGON2: Final = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,7}),t=([0-9]{1,3}),p=([0-9]{1,2})\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+"
)


def made(password: bytes, algorithm: HashAlgorithm) -> str:
    """Hash a password for storage. Raises ValueError if the algorithm can't take it."""
    match algorithm:
        case Argon2idSettings():
            salt = secrets.token_bytes(SALT_BYTES)
            passes, memory = algorithm.passes, algorithm.memory_kib
            return argon2.low_level.hash_secret(
                password, salt, passes, memory, 1, HASH_BYTES, argon2.low_level.Type.ID
            ).decode()
        case BcryptSettings():
            check_password(password, algorithm)
            return bcrypt.hashpw(password, bcrypt.gensalt(algorithm.salt_rounds)).decode()
        case Pbkdf2Settings():
            salt = secrets.token_bytes(SALT_BYTES)
            derived = hashlib.pbkdf2_hmac(algorithm.mac_fun, password, salt, algorithm.iterations, HASH_BYTES)
            return _pbkdf2_text(algorithm.mac_fun, algorithm.iterations, salt, derived)


def check_password(password: bytes, algorithm: HashAlgorithm) -> None:
    """Raises ValueError if the algorithm can't take the password."""
    if isinstance(algorithm, BcryptSettings) and len(password) > BCRYPT_MAX_BYTES:
        raise ValueError(f"bcrypt takes passwords of at most {BCRYPT_MAX_BYTES} bytes; this one has more")


@functools.cache
def decoy(algorithm: HashAlgorithm) -> str:
    """A hash that no password matches, but whose check takes as long as any. Made once per process."""
    return made(secrets.token_bytes(SALT_BYTES), algorithm)


def cost_of(stored: str) -> str | None:
    """The part of a hash that says how long a check takes: algorithm and parameters. None for an unreadable hash."""
    if _ARGON2.fullmatch(stored):
        return stored.rsplit("$", 2)[0]
    if _BCRYPT.fullmatch(stored) or _PBKDF2.fullmatch(stored):
        return "$".join(stored.split("$", 3)[:3])
    return None


def of_cost(cost: str) -> str:
    """A hash of this cost (`cost_of`) that no password matches. Its digest is no password's."""
    if cost.startswith("$2"):
        return f"{cost}${'.' * _BCRYPT_CHARACTERS}"
    length = int(cost.rpartition("l=")[2]) if cost.startswith("$pbkdf2") else HASH_BYTES
    return f"{cost}${_base64(bytes(SALT_BYTES))}${_base64(bytes(length))}"


def is_right(password: bytes, stored: str) -> bool:
    """Whether the password matches the hash; False for an unreadable hash."""
    if _ARGON2.fullmatch(stored):
        try:
            return argon2.low_level.verify_secret(stored.encode(), password, argon2.low_level.Type.ID)
        except argon2.exceptions.VerificationError:
            return False
    if _BCRYPT.fullmatch(stored):
        try:
            return len(password) <= BCRYPT_MAX_BYTES and bcrypt.checkpw(password, stored.encode())
        except ValueError:  # the salt isn't valid base64
            return False
    if match := _PBKDF2.fullmatch(stored):
        salt, expected = _from_base64(match[4]), _from_base64(match[5])
        derived = hashlib.pbkdf2_hmac(match[1], password, salt, int(match[2]), len(expected))
        return hmac.compare_digest(derived, expected)
    return False


def check_stored(stored: str) -> None:
    """Raise ValueError if the hash is unreadable, or its cost exceeds this broker's limits."""
    if match := _ARGON2.fullmatch(stored):
        if int(match[1]) > ARGON2_MAX_KIB or not 1 <= int(match[2]) <= ARGON2_MAX_PASSES:
            raise ValueError(
                f"an argon2id hash may ask for {ARGON2_MAX_KIB} KiB and {ARGON2_MAX_PASSES} passes at most"
            )
    elif match := _BCRYPT.fullmatch(stored):
        if not 4 <= int(match[1]) <= BCRYPT_MAX_ROUNDS:
            raise ValueError(f"a bcrypt hash may have a cost of {BCRYPT_MAX_ROUNDS} at most")
    elif match := _PBKDF2.fullmatch(stored):
        if not 1 <= int(match[2]) <= PBKDF2_MAX_ITERATIONS or not 16 <= len(_from_base64(match[5])) <= 64:
            raise ValueError(f"a pbkdf2 hash may have {PBKDF2_MAX_ITERATIONS} iterations and 16 to 64 bytes")
    else:
        raise ValueError("isn't a hash that is known: $argon2id$…, $2b$… or $pbkdf2-sha256$i=…,l=…$SALT$HASH")


def from_salted(digest: str, salt: str, algorithm: HashAlgorithm) -> str:
    """Convert a hex hash with a separate salt, as EMQX stores pbkdf2, to the form stored here. A hash that contains its
    salt is returned unchanged. Raises ValueError."""
    if digest.startswith("$"):
        check_stored(digest)
        return digest
    if not isinstance(algorithm, Pbkdf2Settings):
        raise ValueError("a hash beside a salt must be pbkdf2's: say so in password_hash_algorithm")
    try:
        derived = bytes.fromhex(digest)
    except ValueError:
        raise ValueError("a pbkdf2 hash beside a salt must be in hex") from None
    stored = _pbkdf2_text(algorithm.mac_fun, algorithm.iterations, salt.encode(), derived)
    check_stored(stored)
    return stored


def _pbkdf2_text(mac_fun: str, iterations: int, salt: bytes, derived: bytes) -> str:
    return f"$pbkdf2-{mac_fun}$i={iterations},l={len(derived)}${_base64(salt)}${_base64(derived)}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""
