"""Who must wait after logins that failed, for how long, and who need not."""

from __future__ import annotations

import pytest

from flockmq.auth import failed_logins
from flockmq.auth.authenticator import Attempt
from flockmq.auth.failed_logins import FailedLogins
from flockmq.bounds import FAILED_LOGINS_KEPT_S, FAILED_LOGINS_OF_ADDRESS_MAX
from flockmq.config.auth_settings import FailedLoginsSettings as Settings
from unit.broker.auth.harness import attempt

HOME, AWAY = "192.0.2.1", "203.0.113.9"


class Gate:
    def __init__(
        self,
        settings: Settings = Settings(max_count=3, max_wait=8.0),  # noqa: B008
        room: int = 1000,
        room_of_address: int = 1000,
    ) -> None:
        self.now_s = 1000.0
        self.failed_logins = FailedLogins(settings, lambda: self.now_s, room, room_of_address)

    def fails(self, tried: Attempt) -> bool:
        """Whether it was tried."""
        if not self.failed_logins.may_try(tried):
            return False
        self.failed_logins.failed(tried)
        return True

    def gets_in(self, tried: Attempt) -> bool:
        if not self.failed_logins.may_try(tried):
            return False
        self.failed_logins.succeeded(tried, tried.username or b"")
        return True


def login(username: str | None = "jo", client_id: str = "c", host: str = HOME) -> Attempt:
    return attempt(client_id, username, "pw", host)


def test_the_wait_doubles_up_to_the_longest_and_one_is_tried_for_each() -> None:
    gate = Gate()
    assert [gate.fails(login()) for _ in range(5)] == [True, True, True, False, False]
    for wait_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        gate.now_s += wait_s - 0.01
        assert not gate.fails(login())
        gate.now_s += 0.01
        assert gate.fails(login())
        assert not gate.fails(login())


def test_while_one_is_tried_for_a_wait_nobody_else_is() -> None:
    gate = Gate()
    for _ in range(3):
        gate.fails(login())
    gate.now_s += 1.0
    assert gate.failed_logins.may_try(login())
    assert not gate.failed_logins.may_try(login())


def test_a_success_and_a_while_without_failures_begin_anew() -> None:
    gate = Gate()
    for _ in range(2):
        gate.fails(login())
    assert gate.gets_in(login())
    assert [gate.fails(login()) for _ in range(4)] == [True, True, True, False]
    gate.now_s += FAILED_LOGINS_KEPT_S + 1.0
    assert [gate.fails(login()) for _ in range(4)] == [True, True, True, False]


def test_other_client_ids_are_no_way_around_it_nor_other_names() -> None:
    gate = Gate()
    assert sum(gate.fails(login(client_id=f"c{number}")) for number in range(10)) == 3
    assert sum(gate.fails(login(username=f"u{number}", client_id="known-by-it")) for number in range(10)) == 3
    assert sum(gate.fails(login(None, "nameless")) for _ in range(10)) == 3


def test_nobody_has_a_user_wait_elsewhere() -> None:
    gate = Gate()
    for _ in range(20):
        gate.fails(login(host=AWAY))
    assert gate.gets_in(login(host=HOME))
    assert gate.gets_in(login(host="::ffff:" + HOME))


def test_nobody_has_a_client_wait_that_was_let_in_from_there() -> None:
    gate = Gate()
    assert gate.gets_in(login(client_id="jos-own"))
    for number in range(20):
        gate.fails(login(client_id=f"guess-{number}"))
    assert not gate.failed_logins.may_try(login(client_id="new"))
    assert gate.gets_in(login(client_id="jos-own"))
    assert [gate.fails(login(client_id="jos-own")) for _ in range(4)] == [True, True, True, False], "on its own"


def test_an_address_that_tries_many_names_has_each_wait_from_its_first_failure_and_nobody_else() -> None:
    gate = Gate()
    for number in range(FAILED_LOGINS_OF_ADDRESS_MAX):
        assert gate.fails(login(f"u{number}", f"c{number}"))
    assert [gate.fails(login("next", "n")) for _ in range(3)] == [True, False, False]
    assert gate.gets_in(login("somebody", "s")), "who knows its password isn't kept from saying it"


def test_who_has_a_name_forgotten_by_failing_with_others_guesses_it_no_faster() -> None:
    gate = Gate()
    for _ in range(10):
        gate.now_s += 8.0
        assert gate.fails(login("victim", "v"))
    for number in range(1000):
        assert gate.fails(login(f"u{number}", f"c{number}"))
    tries = 0
    for _ in range(160):
        gate.now_s += 0.1
        tries += gate.fails(login("victim", "v"))
    assert tries == 2, "one for each longest wait"
    assert gate.fails(login("victim", "v", AWAY))
    assert [gate.fails(login("victim", "v", AWAY)) for _ in range(3)] == [True, True, False], "it is another address"


def test_nobody_has_what_failed_elsewhere_forgotten() -> None:
    """Otherwise who has two addresses guesses at one as fast as it fails at the other."""
    gate = Gate(room=100, room_of_address=50)
    assert [gate.fails(login("victim", "v")) for _ in range(4)] == [True, True, True, False]
    for number in range(1000):
        assert gate.fails(login(f"u{number}", f"c{number}", AWAY))
    assert len(gate.failed_logins) == 50 + 3
    assert not gate.fails(login("victim", "v"))
    gate.now_s += FAILED_LOGINS_KEPT_S + 1.0
    assert gate.gets_in(login("victim", "v"))
    assert len(gate.failed_logins) == 50 + 1


def test_an_ipv6_host_is_its_network() -> None:
    gate = Gate()
    tried = [gate.fails(login(host=f"2001:db8::{number:x}")) for number in range(6)]
    assert tried == 3 * [True] + 3 * [False]
    assert gate.fails(login(host="2001:db8:0:1::1"))


def test_who_says_no_name_and_no_password_is_never_slowed() -> None:
    gate = Gate()
    nameless = attempt("c")
    assert all(gate.fails(nameless) for _ in range(20))
    assert len(gate.failed_logins) == 0


def test_it_can_be_turned_off() -> None:
    gate = Gate(Settings(enable=False))
    assert all(gate.fails(login()) for _ in range(20))
    assert gate.gets_in(login())
    assert len(gate.failed_logins) == len(gate.failed_logins._known) == 0


def test_the_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "KNOWN_CLIENTS_MAX", 10)
    gate = Gate(room=10)
    for number in range(100):
        gate.fails(login(f"u{number}", f"c{number}", f"10.0.0.{number}"))
        gate.gets_in(login(f"u{number}", f"d{number}", f"10.0.1.{number}"))
    assert len(gate.failed_logins) == 10
    assert len(gate.failed_logins._known) == 10


def test_a_user_of_very_many_client_ids_has_nobody_else_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody at the victim's address, who has a user of his own there."""
    monkeypatch.setattr(failed_logins, "KNOWN_CLIENTS_MAX", 10)
    gate = Gate()
    assert gate.gets_in(login("victim", "v"))
    for number in range(100):
        mallory = login(f"said-{number}", f"m{number}")
        gate.failed_logins.succeeded(mallory, b"mallory")
    assert all(gate.fails(login("said-99", "m99")) for _ in range(3)), "its latest is known"
    assert not gate.fails(login("said-99", "m99"))
    for number in range(10):
        gate.fails(login("victim", f"x{number}"))
    assert not gate.fails(login("victim", "y")), "the name must wait there"
    assert gate.gets_in(login("victim", "v"))
    assert len(gate.failed_logins._known) == 10
    assert gate.gets_in(login("new", "n", AWAY))
    assert len(gate.failed_logins._known) == 10


def test_other_settings_hold_for_what_was_counted() -> None:
    gate = Gate()
    assert [gate.fails(login()) for _ in range(2)] == [True, True]
    gate.failed_logins.configure(Settings(max_count=5, max_wait=8.0))
    assert [gate.fails(login()) for _ in range(4)] == [True, True, True, False]
    gate.failed_logins.configure(Settings(enable=False))
    assert [gate.fails(login()) for _ in range(9)] == [True] * 9
    assert len(gate.failed_logins) == 0
