"""A password is read as it is in its Secret, and shown nowhere."""

import pytest

from flockmq_operator.spec import SecretKey
from flockmq_operator.users.password import Password, Unusable, applied, read_applied, read_password
from unit.operator.users.harness import secret

WANTED = SecretKey("s")


def read(value: bytes, version: int = 1) -> Password | Unusable:
    return read_password(secret("s", {"password": value}, version), WANTED, "fleet")


@pytest.mark.parametrize("text", ["pw", "pw\n", " ö ", "x" * 4096])
def test_it_is_taken_as_it_is(text: str) -> None:
    password = read(text.encode())
    assert isinstance(password, Password)
    assert password.reveal() == text
    assert repr(password) == str(password) == "Password(…)"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "has 0 bytes: a password has 1 to 4096"),
        (b"x" * 4097, "has 4097 bytes"),
        (b"secret\xff", "isn't UTF-8 text"),
    ],
)
def test_one_that_no_client_can_have_is_unusable_and_not_shown(value: bytes, why: str) -> None:
    found = read(value)
    assert isinstance(found, Unusable)
    assert found.reason == "PasswordUnusable"
    assert why in found.message
    assert "secret" not in found.message


def test_what_was_applied_is_known_again_by_the_versions_alone() -> None:
    first, again, written = read(b"pw"), read(b"pw"), read(b"pw", 2)
    assert isinstance(first, Password)
    assert isinstance(again, Password)
    assert isinstance(written, Password)
    known = applied("key", first.version, "row 1")
    assert applied("key", again.version, "row 1") == known
    assert applied("key", written.version, "row 1").secret != known.secret
    assert applied("key", first.version, "row 2").row != known.row
    assert not set(applied("other", first.version, "row 1")) & set(known), "without the key nothing is known"
    assert read_applied({"applied": str(known)}) == known
    assert len(str(known)) <= 64
    assert read_applied({}) == ("", "")
