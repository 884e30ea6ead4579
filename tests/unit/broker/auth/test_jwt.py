"""Tokens: whose they are, what they say, and whom they let in."""

from __future__ import annotations

import base64
import hmac
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from flockmq.auth.authenticator import Granted, LoginRefused, Pass, Verdict
from flockmq.auth.jwt import JwtAuthenticator
from flockmq.auth.rules import Rules, Subject
from flockmq.config.auth_settings import JwtSettings
from flockmq.config.values import Secret
from flockmq.errors import ConfigError
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import PUBLISH
from unit.broker.auth.harness import attempt

SECRET = "0123456789abcdef0123456789abcdef"
NOW_S, HOUR_S = int(time.time()), 3600  # a run of the tests takes less than an hour


def by_hmac(**more: Any) -> JwtAuthenticator:
    return JwtAuthenticator(JwtSettings(algorithm="hmac-based", secret=Secret(SECRET), **more), "chain[0]")


def token(secret: str = SECRET, algorithm: str = "HS256", **claims: object) -> str:
    return jwt.encode(claims, secret, algorithm)


def verdict(authenticator: JwtAuthenticator, password: str | None, username: str | None = "jo") -> Verdict:
    answer = authenticator.check(attempt("c", username, password))
    assert isinstance(answer, Granted | LoginRefused | Pass)
    return answer


def granted(answer: Verdict) -> Granted:
    assert isinstance(answer, Granted), answer
    return answer


def refused(answer: Verdict) -> LoginRefused:
    assert isinstance(answer, LoginRefused), answer
    return answer


@pytest.mark.parametrize(("algorithm", "least"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_token_that_we_signed_with_a_secret_long_enough_lets_in(algorithm: str, least: int) -> None:
    signed = token("s" * least, algorithm, exp=NOW_S + HOUR_S)
    ours = JwtAuthenticator(JwtSettings(algorithm="hmac-based", secret=Secret("s" * least)), "chain[0]")
    assert granted(verdict(ours, signed)) == Granted(b"jo", expires_at_s=NOW_S + HOUR_S)
    assert verdict(by_hmac(), signed) is Pass.UNKNOWN


@pytest.mark.parametrize(
    "password",
    [
        None,
        "",
        "secret",
        "a.b.c",
        token("another secret of thirty-two bytes"),
        jwt.encode({}, None, "none"),
        "x" * 10_000,
    ],
)
def test_what_isnt_our_token_may_be_anothers(password: str | None) -> None:
    assert verdict(by_hmac(), password) is Pass.UNKNOWN


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 1},
        {"nbf": NOW_S + HOUR_S},
        {"iat": NOW_S + HOUR_S},
        {"exp": "tomorrow"},
        {"exp": str(NOW_S + HOUR_S)},
        {"exp": NOW_S * 1000},
    ],
)
def test_our_token_at_another_time_is_refused(claims: dict[str, object]) -> None:
    answer = verdict(by_hmac(), token(**claims))
    assert isinstance(answer, LoginRefused)
    assert answer.reason == Reason.BAD_USER_NAME_OR_PASSWORD


def test_an_issuers_clock_may_be_ahead_by_seconds() -> None:
    assert granted(verdict(by_hmac(), token(iat=NOW_S + 3, nbf=NOW_S + 3)))


def test_claims_must_be_what_they_must_be() -> None:
    checked = by_hmac(verify_claims={"sub": "${username}", "client": "${clientid}", "aud": "mqtt"})
    good = {"sub": "jo", "client": "c", "aud": ["web", "mqtt"]}
    granted(verdict(checked, token(**good)))
    for wrong in ({"sub": "ann"}, {"client": "x"}, {"aud": "web"}, {"aud": 5}):
        assert isinstance(verdict(checked, token(**{**good, **wrong})), LoginRefused)
    assert isinstance(verdict(checked, token(sub="jo", client="c")), LoginRefused)


def test_a_token_in_the_user_names_place_is_its_subjects() -> None:
    answer = verdict(by_hmac(taken_from="username"), None, token(sub="meter-1"))
    assert granted(answer).username == b"meter-1"


def test_a_subject_that_no_user_name_can_be_is_refused() -> None:
    refused(verdict(by_hmac(taken_from="username"), None, token(sub="\ud800")))


def test_what_a_token_says_the_client_may_do() -> None:
    answer = granted(verdict(by_hmac(), token(acl={"pub": ["a/#"]}, is_superuser=True)))
    assert answer.is_superuser
    assert isinstance(answer.rules, Rules)
    assert answer.rules.decide(Subject("c", "jo", ""), PUBLISH, b"a/b", 0, False) is True
    assert answer.rules.decide(Subject("c", "jo", ""), PUBLISH, b"b", 0, False) is None
    unreadable = verdict(by_hmac(), token(acl=[{"topic": 5}]))
    assert isinstance(unreadable, LoginRefused)
    assert unreadable.reason == Reason.NOT_AUTHORIZED
    assert not granted(verdict(by_hmac(), token(is_superuser="yes"))).is_superuser


def test_a_client_may_stay_though_its_token_ran_out_where_it_is_said() -> None:
    assert granted(verdict(by_hmac(disconnect_after_expire=False), token(exp=NOW_S + HOUR_S))).expires_at_s == 0.0


KEYS: list[tuple[Any, str]] = [
    (rsa.generate_private_key(65537, 2048), "RS256"),
    (rsa.generate_private_key(65537, 2048), "PS512"),
    (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    (ec.generate_private_key(ec.SECP384R1()), "ES384"),
    (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
]


def pem(key: Any) -> bytes:
    made: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return made


@pytest.mark.parametrize(("key", "algorithm"), KEYS)
def test_public_keys(tmp_path: Path, key: Any, algorithm: str) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(key))
    checked = JwtAuthenticator(JwtSettings(algorithm="public-key", public_key_file=file), "chain[0]")
    granted(verdict(checked, jwt.encode({}, key, algorithm)))
    other = rsa.generate_private_key(65537, 2048)
    assert verdict(checked, jwt.encode({}, other, "RS256")) is Pass.UNKNOWN


def test_a_public_key_is_never_taken_for_a_secret(tmp_path: Path) -> None:
    """The classic confusion: a token signed by HMAC with the public key's bytes."""
    file = tmp_path / "key.pem"
    file.write_bytes(pem(KEYS[0][0]))
    checked = JwtAuthenticator(JwtSettings(algorithm="public-key", public_key_file=file), "chain[0]")
    head, body, _ = token().split(".")
    signature = base64.urlsafe_b64encode(hmac.digest(pem(KEYS[0][0]), f"{head}.{body}".encode(), "sha256"))
    assert verdict(checked, f"{head}.{body}.{signature.decode().rstrip('=')}") is Pass.UNKNOWN


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"algorithm": "hmac-based", "secret": Secret("short")},
            r"chain\[0\].secret_file: must hold at least 32 bytes",
        ),
        ({"algorithm": "public-key", "public_key_file": Path("/nowhere")}, "can't be read: No such file"),
        ({"algorithm": "public-key", "public_key_file": Path(__file__)}, "has no PEM public key"),
        ({"algorithm": "hmac-based", "secret": Secret(SECRET), "verify_claims": {"a": "${x}"}}, "is unknown"),
    ],
)
def test_settings_that_cant_be_used_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        JwtAuthenticator(JwtSettings(**settings), "chain[0]")


def test_a_token_that_never_ends_can_be_refused() -> None:
    strict = by_hmac(require_exp=True)
    for never in (token(sub="jo"), token(exp=None)):
        assert refused(verdict(strict, never)).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert granted(verdict(strict, token(exp=NOW_S + HOUR_S))).expires_at_s == NOW_S + HOUR_S
    assert granted(verdict(by_hmac(), token(sub="jo"))).expires_at_s == 0


@pytest.mark.parametrize("said", [{}, {"aud": "billing"}, {"aud": ["billing", "mail"]}, {"aud": []}, {"aud": 7}])
def test_a_token_for_another_audience_can_be_refused(said: dict[str, object]) -> None:
    strict = by_hmac(audience=("mqtt", "mqtt-test"))
    assert refused(verdict(strict, token(**said))).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    granted(verdict(by_hmac(), token(**said)))
    for ours in ("mqtt", ["billing", "mqtt-test"]):
        granted(verdict(strict, token(aud=ours)))


def test_a_token_isnt_taken_by_who_isnt_its_subject() -> None:
    bound = by_hmac(verify_claims={"sub": "${username}"})
    granted(verdict(bound, token(sub="jo"), "jo"))
    for other in ("ann", "", None):
        assert refused(verdict(bound, token(sub="jo"), other)).reason == Reason.BAD_USER_NAME_OR_PASSWORD
