"""A challenge doesn't tell who exists, whenever users' verifiers were made."""

from __future__ import annotations

from flockmq.auth.scram import Verifier
from flockmq.auth.unknown_user_iterations import UnknownUserIterations
from flockmq.auth.user_revocation import disabled
from flockmq.rlog.schema import User

NOBODY = [f"nobody-{number}" for number in range(400)]


def user(iterations: int) -> User:
    return User("", str(Verifier(iterations, b"salt" * 4, b"k" * 32, b"k" * 32)))


def told(iterations: UnknownUserIterations) -> list[int]:
    return [iterations.count_for(name, b"pepper") for name in NOBODY]


def test_without_a_verifier_the_usual_number_is_told() -> None:
    iterations = UnknownUserIterations(600_000)
    iterations.spread.put("hash-only", User("$2b$…"), None)
    assert set(told(iterations)) == {600_000}


def test_nobody_is_told_what_users_are_told() -> None:
    iterations = UnknownUserIterations(600_000)
    for number in range(30):
        iterations.spread.put(f"u{number}", user(4096), None)
    assert set(told(iterations)) == {4096}
    for number in range(10):
        iterations.spread.put(f"u{number}", user(600_000), user(4096))
    before = told(iterations)
    assert 200 < before.count(4096) < 330
    assert told(iterations) == before
    iterations.spread.put("u10", user(600_000), user(4096))
    changed = [pair for pair in zip(before, told(iterations), strict=True) if pair[0] != pair[1]]
    assert set(changed) <= {(4096, 600_000)}, "as a user's changes with a password"


def test_a_disabled_user_counts_as_it_did() -> None:
    iterations = UnknownUserIterations(600_000)
    iterations.spread.put("a", disabled(user(4096)), None)
    assert set(told(iterations)) == {4096}


def test_users_that_go_count_no_more() -> None:
    iterations = UnknownUserIterations(600_000)
    iterations.spread.put("a", user(4096), None)
    iterations.spread.delete("a", user(4096))
    assert set(told(iterations)) == {600_000}
    fresh = iterations.spread.fresh()
    fresh.put("b", user(9999), None)
    iterations.spread.swap(fresh)
    assert set(told(iterations)) == {9999}
