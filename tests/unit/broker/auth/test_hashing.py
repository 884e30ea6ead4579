"""Each algorithm takes its own passwords back, and no others; hashes made elsewhere are read."""

import pytest

from flockmq.auth import hashing
from flockmq.config.auth_settings import Argon2idSettings, BcryptSettings, HashAlgorithm, Pbkdf2Settings

ALGORITHMS: list[HashAlgorithm] = [
    Argon2idSettings(memory_kib=8192, passes=1),
    BcryptSettings(salt_rounds=5),
    Pbkdf2Settings(iterations=4096),
    Pbkdf2Settings(mac_fun="sha512", iterations=4096),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hash_fits_its_password_only(algorithm: HashAlgorithm) -> None:
    stored = hashing.made(b"right \xc3\xa4", algorithm)
    hashing.check_stored(stored)
    assert hashing.is_right(b"right \xc3\xa4", stored)
    assert not hashing.is_right(b"wrong", stored)
    assert not hashing.is_right(b"", stored)
    assert stored != hashing.made(b"right \xc3\xa4", algorithm), "each hash has a salt of its own"


@pytest.mark.parametrize(
    ("password", "stored"),
    [
        # RFC 9106, reference implementation: echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1
        (b"password", "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"),
        # OpenBSD's bcrypt test vectors
        (b"U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
        # RFC 7914, section 11: PBKDF2-HMAC-SHA-256, c=80000, its first 32 bytes
        (b"Password", "$pbkdf2-sha256$i=80000,l=32$TmFDbA$TdzY9guYviGDDO5e8icB+WQaRBjQTAQUrv8Ih2s0q1Y"),
    ],
)
def test_hashes_from_elsewhere_are_read(password: bytes, stored: str) -> None:
    hashing.check_stored(stored)
    assert hashing.is_right(password, stored)
    assert not hashing.is_right(b"other", stored)


def test_a_hash_that_cant_be_read_fits_nothing() -> None:
    assert not hashing.is_right(b"pw", "$2b$05$" + "z" * 53)
    assert not hashing.is_right(b"pw", "$argon2id$v=19$m=8,t=0,p=0$AAAA$AAAA")
    assert not hashing.is_right(b"pw", "pw")


def test_a_pbkdf2_hash_in_hex_beside_its_salt_becomes_one_that_says_how_it_was_made() -> None:
    # RFC 7914, section 11: PBKDF2-HMAC-SHA-256 ("passwd", "salt", 1, 64), its first 32 bytes
    digest = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
    stored = hashing.from_salted(digest, "salt", Pbkdf2Settings(iterations=4096))
    assert stored.startswith("$pbkdf2-sha256$i=4096,l=32$c2FsdA$")
    one_pass = stored.replace("i=4096", "i=1")
    assert hashing.is_right(b"passwd", one_pass)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("plain text", "isn't a hash that is known"),
        ("", "isn't a hash that is known"),
        ("$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "262144 KiB"),
        ("$argon2id$v=19$m=65536,t=99,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "16 passes"),
        ("$2b$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "cost of 14"),
        ("$pbkdf2-sha256$i=99999999,l=32$c2FsdA$TdzY+YtqIZge5CzrKJAXj5aw9IwYonwiBEwu8wGWoWs", "iterations"),
        ("$pbkdf2-sha256$i=1,l=4$c2FsdA$TdzYAA", "16 to 64 bytes"),
    ],
)
def test_a_hash_that_cant_be_checked_at_a_bearable_cost_is_refused(stored: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hashing.check_stored(stored)
    assert stored.startswith("$") or not hashing.is_right(b"", stored)


def test_bcrypt_takes_no_password_that_it_would_cut() -> None:
    with pytest.raises(ValueError, match="at most 72 bytes"):
        hashing.made(b"x" * 73, BcryptSettings(salt_rounds=5))
    stored = hashing.made(b"x" * 72, BcryptSettings(salt_rounds=5))
    assert hashing.is_right(b"x" * 72, stored)
    assert not hashing.is_right(b"x" * 73, stored)
