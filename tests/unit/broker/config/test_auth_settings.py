"""The configuration of who may connect and do what: what the documentation shows can be used, mistakes are named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from flockmq.config.auth_settings import AuthenticationSettings, AuthorizationSettings, FlappingSettings
from flockmq.config.conversion import read
from flockmq.config.schema import ManagementSettings
from flockmq.errors import ConfigError

DOCUMENTATION = Path(__file__).parents[4] / "docs" / "access.md"
SECTIONS = {
    "authentication": AuthenticationSettings,
    "authorization": AuthorizationSettings,
    "management": ManagementSettings,
    "flapping": FlappingSettings,
}


def test_what_the_documentation_shows_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("k" * 32)
    shown = re.findall(r"```toml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert len(shown) == len(SECTIONS)
    for text in shown:
        for name, value in tomllib.loads(text.replace("/etc/flockmq/api-key", str(tmp_path / "api-key"))).items():
            made = read(value, SECTIONS[name], name)
            assert made != SECTIONS[name]()


def test_durations_and_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    jwt = {"mechanism": "jwt", "algorithm": "hmac-based", "secret_file": str(tmp_path / "secret")}
    made = read({"chain": [jwt | {"refresh_interval": "10m"}]}, AuthenticationSettings, "authentication")
    assert isinstance(made, AuthenticationSettings)
    assert made.chain[0].refresh_interval == 600.0  # type: ignore[union-attr]
    assert made.chain[0].secret.reveal() == "s" * 32  # type: ignore[union-attr]
    assert "sss" not in repr(made)


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ({"mechanism": "magic"}, r"chain\[0\].mechanism: 'magic' must be password_based:built_in_database or "),
        ({"backend": "http"}, r"chain\[0\].mechanism: is missing"),
        ({"mechanism": "cert", "user": "cn"}, r"chain\[0\].user: unknown key; did you mean username\?"),
        ({"mechanism": "password_based:http"}, r"chain\[0\].url: is missing"),
        ({"mechanism": "jwt", "algorithm": "hmac-based"}, r"chain\[0\]: algorithm hmac-based needs secret_file"),
        (
            {"mechanism": "jwt", "algorithm": "public-key", "public_key_file": "/x", "endpoint": "http://x"},
            r"chain\[0\]: algorithm public-key needs either public_key_file or endpoint",
        ),
        (
            {"mechanism": "password_based:redis", "url": "redis://x", "cmd": "GET k"},
            r"chain\[0\]: cmd 'GET k' must be HMGET KEY password_hash",
        ),
        (
            {"mechanism": "password_based:redis", "url": "redis://x", "cmd": "HMGET k password_hash color"},
            "cmd asks for color; known: password_hash, salt, is_superuser",
        ),
        (
            {"mechanism": "password_based:built_in_database", "password_hash_algorithm": {"name": "md5"}},
            "'md5' must be argon2id or pbkdf2 or bcrypt",
        ),
    ],
)
def test_a_link_that_cant_be_meant_is_refused(link: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read({"chain": [link]}, AuthenticationSettings, "authentication")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"type": "file"}, "needs either path or rules"),
        ({"type": "file", "path": "/x", "rules": [{"permit": "allow"}]}, "needs either path or rules"),
        (
            {"type": "file", "rules": [{"permit": "yes"}]},
            r"sources\[0\].rules\[0\].permit: 'yes' must be allow or deny",
        ),
        *(
            (
                {"type": "file", "rules": [{"permit": "allow", name: []}]},
                rf"rules\[0\].{name}: \[\] must be a list that",
            )
            for name in ("topics", "qos", "ipaddr")
        ),
        ({"type": "ldap"}, "must be file or built_in_database or http"),
    ],
)
def test_a_source_that_cant_be_meant_is_refused(source: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read({"sources": [source]}, AuthorizationSettings, "authorization")
