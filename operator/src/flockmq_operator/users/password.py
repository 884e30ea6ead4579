"""The password of a MqttUser, as its Secret holds it, and how to know later that it was set. Pure.

Invariant: a password is in no object but its Secret, in no log line and in no event. The status has `applied`, two
digests, keyed with the cluster's API key, which only readers of Secrets know: of the Secret's version (not of what is
in it), and of the version of the user's row that the cluster told. So nobody can try passwords against them.
"""

import hashlib
import hmac
from base64 import b64decode
from typing import NamedTuple

from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import SecretKey

PASSWORD_MAX_BYTES = 4096
"""The broker's bound."""
DIGEST_LETTERS = 24


class Password:
    def __init__(self, text: str, version: str) -> None:
        """`version` is another one whenever the Secret is written."""
        self._text = text
        self.version = version

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Password(…)"


class Unusable(NamedTuple):
    """Why there is no password: a condition's reason and sentence."""

    reason: str
    message: str


def read_password(secret: Manifest | None, wanted: SecretKey, namespace: str) -> Password | Unusable:
    """`secret`: as the API server returned it; None: there is none."""
    where = f"Secret {wanted.name} in namespace {namespace}"
    if secret is None:
        return Unusable("SecretMissing", f"{where} doesn't exist: create it, with the key {wanted.key}")
    data = secret.get("data") or {}
    if wanted.key not in data:
        return Unusable("KeyMissing", f"{where} has no key {wanted.key}: add it, with the password")
    raw = b64decode(data[wanted.key])
    if not 0 < len(raw) <= PASSWORD_MAX_BYTES:
        sentence = f"{where}: key {wanted.key} has {len(raw)} bytes: a password has 1 to {PASSWORD_MAX_BYTES}"
        return Unusable("PasswordUnusable", sentence)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Unusable("PasswordUnusable", f"{where}: key {wanted.key} isn't UTF-8 text: write another password")
    metadata = secret["metadata"]
    return Password(text, f"{metadata.get('uid')}/{metadata.get('resourceVersion')}/{wanted.key}")


class Applied(NamedTuple):
    """That the password of this version of a Secret was set, and how the user's row was then."""

    secret: str
    row: str

    def __str__(self) -> str:
        return f"{self.secret}.{self.row}"


def applied(api_key: str, secret_version: str, row_version: str) -> Applied:
    return Applied(_digest(api_key, f"secret {secret_version}"), _digest(api_key, f"row {row_version}"))


def read_applied(status: Manifest) -> Applied:
    secret, _, row = status.get("applied", "").partition(".")
    return Applied(secret, row)


def _digest(api_key: str, text: str) -> str:
    return hmac.new(api_key.encode(), text.encode(), hashlib.sha256).hexdigest()[:DIGEST_LETTERS]
