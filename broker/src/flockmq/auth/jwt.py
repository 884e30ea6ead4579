"""Authentication by a signed token instead of a password (mechanism `jwt`; RFC 7519).

A token that none of our keys signed is left to the next authenticator of the chain. A token that our key signed is
refused if it has expired or lacks a required claim. The key determines the accepted algorithms, never the token.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Coroutine, Mapping
from typing import Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.types import Options

from flockmq.auth.authenticator import Attempt, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.jwks import KeySet
from flockmq.auth.rules import claimed
from flockmq.auth.template import Template
from flockmq.bounds import EXPIRES_MAX_S, JWT_MAX_BYTES, JWT_SKEW_MAX_S, SECRET_MAX_BYTES
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import JwtSettings
from flockmq.errors import ConfigError
from flockmq.mqtt.reason import Reason

log: Final = logging.getLogger(__name__)

HMAC: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithm → minimum length of the secret in bytes (RFC 7518, section 3.2)."""
CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
CLAIM_VALUES: Final = ("clientid", "username", "peerhost", "cert_common_name", "cert_subject")

_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


class JwtAuthenticator:
    """The constructor raises ConfigError for invalid settings."""

    def __init__(self, settings: JwtSettings, where: str, clock: Clock = SYSTEM) -> None:
        self._settings = settings
        self._clock = clock
        self._where = where
        self._keys = None
        if settings.endpoint is not None:
            self._keys = KeySet(settings.endpoint, settings.refresh_interval, where, clock)
        self._demands: Options = {
            "verify_aud": bool(settings.audience),
            "verify_sub": False,
            "verify_jti": False,
            "require": ["exp"] if settings.require_exp else [],
        }
        self._key = None if self._keys is not None else _own_key(settings, where)
        try:
            self._claims = {name: Template(text, CLAIM_VALUES) for name, text in settings.verify_claims.items()}
        except ValueError as error:
            raise ConfigError(f"{where}.verify_claims: {error}") from None

    async def start(self) -> None:
        if self._keys is not None:
            await self._keys.start()

    async def stop(self) -> None:
        if self._keys is not None:
            await self._keys.stop()

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        token = attempt.password if self._settings.taken_from == "password" else attempt.username
        if token is None or len(token) > JWT_MAX_BYTES or not _TOKEN.fullmatch(token):
            return Pass.UNKNOWN
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return Pass.UNKNOWN
        if self._keys is None:
            return self._verdict(attempt, token, self._key)
        if not isinstance(key_id, str):
            key_id = None
        if key_id in self._keys or not self._keys.may_ask:
            return self._verdict_by_key_id(attempt, token, self._keys, key_id)
        return self._asked(attempt, token, self._keys, key_id)

    async def _asked(self, attempt: Attempt, token: bytes, keys: KeySet, key_id: str | None) -> Verdict:
        """The key is unknown and may be new, so fetch the keys first."""
        await keys.refresh()
        return self._verdict_by_key_id(attempt, token, keys, key_id)

    def _verdict_by_key_id(self, attempt: Attempt, token: bytes, keys: KeySet, key_id: str | None) -> Verdict:
        return self._verdict(attempt, token, keys.get(key_id)) if len(keys) else Pass.UNAVAILABLE

    def _verdict(self, attempt: Attempt, token: bytes, key: object) -> Verdict:
        if key is None:
            return Pass.UNKNOWN
        try:
            claims = jwt.decode(
                token,
                key,  # type: ignore[arg-type]  # one of ours
                algorithms=algorithms(key),
                options=self._demands,
                audience=self._settings.audience or None,
                leeway=JWT_SKEW_MAX_S,
            )
        except jwt.ExpiredSignatureError:
            return _refused("its token ran out")
        except jwt.MissingRequiredClaimError as error:
            return _refused(f"its token has no {error.claim}")
        except jwt.InvalidAudienceError:
            return _refused("its token is for another audience")
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError):
            return _refused("its token isn't valid yet")
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            return Pass.UNKNOWN
        except jwt.PyJWTError as error:
            return _refused(f"its token can't be used: {type(error).__name__}")
        return self._granted(attempt, claims)

    def _granted(self, attempt: Attempt, claims: Mapping[str, object]) -> Verdict:
        expires_at_s = claims.get("exp", 0)
        if not isinstance(expires_at_s, int | float):
            return _refused("its token's exp isn't a number")
        if expires_at_s >= EXPIRES_MAX_S:
            return _refused("its token's exp is no time: it is to be in seconds since the epoch")
        if "exp" in claims and expires_at_s <= self._clock.wall():  # the leeway is for `nbf` and `iat`, not for `exp`
            return _refused("its token ran out")
        for name, template in self._claims.items():
            expected, found = template.render(attempt.value), claims.get(name)
            if found != expected and not (isinstance(found, list) and expected in found):
                return _refused(f"its token's claim {name} isn't what it must be")
        acl = claims.get(self._settings.acl_claim_name)
        try:
            rules = None if acl is None else claimed(acl)
        except (ValueError, msgspec.ValidationError) as error:
            return LoginRefused(
                Reason.NOT_AUTHORIZED, f"its token's {self._settings.acl_claim_name} can't be read: {error}"
            )
        try:
            username = _username(self._settings, attempt, claims)
        except ValueError:  # JSON can hold a half of a surrogate pair.
            return _refused("its token's sub is no text")
        return Granted(
            username,
            is_superuser=claims.get("is_superuser") is True,
            rules=rules,
            expires_at_s=float(expires_at_s) if self._settings.disconnect_after_expire else 0.0,
        )


def _username(settings: JwtSettings, attempt: Attempt, claims: Mapping[str, object]) -> bytes:
    """The user name; if the token is sent as the user name, the token's subject. Raises ValueError."""
    if settings.taken_from == "password":
        return attempt.username or b""
    subject = claims.get("sub")
    return subject.encode() if isinstance(subject, str) else b""


def _refused(why: str) -> LoginRefused:
    return LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, why)


def algorithms(key: object) -> list[str]:
    """The algorithms that may be used with this key."""
    match key:
        case bytes():
            return [name for name, least in HMAC.items() if len(key) >= least]
        case jwt.PyJWK():
            return [key.algorithm_name]
        case rsa.RSAPublicKey():
            return ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
        case ec.EllipticCurvePublicKey():
            return [CURVES[key.curve.name]] if key.curve.name in CURVES else []
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return ["EdDSA"]
    return []


def _own_key(settings: JwtSettings, where: str) -> object:
    if settings.secret is not None:
        secret = settings.secret.reveal().encode()
        if not algorithms(secret):
            raise ConfigError(f"{where}.secret_file: must hold at least {HMAC['HS256']} bytes (RFC 7518, section 3.2)")
        return secret
    file = settings.public_key_file
    assert file is not None, "the settings were checked"
    try:
        with file.open("rb") as opened:
            pem = opened.read(SECRET_MAX_BYTES * 4)
    except OSError as error:
        raise ConfigError(f"{where}.public_key_file: {str(file)!r} can't be read: {error.strerror}") from None
    try:
        is_certificate = b"BEGIN CERTIFICATE" in pem
        key = load_pem_x509_certificate(pem).public_key() if is_certificate else load_pem_public_key(pem)
    except ValueError:
        raise ConfigError(f"{where}.public_key_file: {str(file)!r} has no PEM public key or certificate") from None
    if not algorithms(key):
        raise ConfigError(f"{where}.public_key_file: {str(file)!r} must have an RSA, EC or Ed25519 key")
    return key
