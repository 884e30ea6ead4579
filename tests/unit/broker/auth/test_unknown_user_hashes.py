"""How long a wrong password takes doesn't tell who exists, whatever hashes users have."""

from __future__ import annotations

import pytest

from flockmq.auth import hashing
from flockmq.auth.hashing import cost_of, is_right, made, of_cost
from flockmq.auth.unknown_user_hashes import UnknownUserHashes, of_disabled
from flockmq.auth.user_revocation import disabled
from flockmq.config.auth_settings import Argon2idSettings, BcryptSettings, HashAlgorithm, Pbkdf2Settings
from flockmq.rlog.schema import User

CHEAP = Pbkdf2Settings(iterations=4096)
IMPORTED = hashing.from_salted("ab" * 20, "salt", CHEAP)
"""As EMQX has it, with a digest of 20 bytes."""
ALGORITHMS: list[HashAlgorithm] = [
    CHEAP,
    Pbkdf2Settings(mac_fun="sha512", iterations=4096),
    BcryptSettings(salt_rounds=4),
    Argon2idSettings(memory_kib=8192, passes=1),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hash_of_a_cost_is_checked_like_any_of_it_and_matches_nothing(algorithm: HashAlgorithm) -> None:
    stored = made(b"pw", algorithm)
    cost = cost_of(stored)
    assert cost is not None
    assert stored.startswith(cost)
    unmatched = of_cost(cost)
    hashing.check_stored(unmatched)
    assert cost_of(unmatched) == cost
    assert cost == cost_of(made(b"other", algorithm))
    assert len(unmatched) == len(stored)
    assert not is_right(b"pw", unmatched)


def test_an_unknown_user_takes_as_long_as_users_do() -> None:
    hashes = UnknownUserHashes(made(b"x", Argon2idSettings(memory_kib=8192, passes=1)), lambda: b"pepper")
    usual = {cost_of(hashes.hash_for(f"nobody-{number}")) for number in range(100)}
    assert usual == {"$argon2id$v=19$m=8192,t=1,p=1"}
    for number in range(30):
        hashes.spread.put(f"imported-{number}", User(IMPORTED), None)
    for number in range(10):
        hashes.spread.put(f"made-{number}", disabled(User(made(b"pw", CHEAP))), None)
    costs = [cost_of(hashes.hash_for(f"nobody-{number}")) for number in range(400)]
    assert set(costs) == {cost_of(IMPORTED), cost_of(made(b"x", CHEAP))}
    assert 250 < costs.count(cost_of(IMPORTED)) < 350
    assert costs == [cost_of(hashes.hash_for(f"nobody-{number}")) for number in range(400)]


def test_a_disabled_user_takes_as_long_as_it_did() -> None:
    user = disabled(User(IMPORTED))
    assert cost_of(of_disabled(user)) == cost_of(IMPORTED)
    assert not is_right(b"pw", of_disabled(User("unreadable")))
