"""Who is asked, who decides, and what a client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import jwt
import pytest

from flockmq.auth.authenticator import Attempt, Authenticator, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.built_in import BuiltInAuthenticator, Passwords, ScramExchange
from flockmq.auth.certificate import CertificateAuthenticator
from flockmq.auth.chain import Chain, Outcome
from flockmq.auth.client_ids import BoundToClientIds, ClientIds
from flockmq.auth.hash_pool import HashPool, VerifiedPasswords
from flockmq.auth.hashing import decoy, made
from flockmq.auth.jwt import JwtAuthenticator
from flockmq.auth.redis import RedisAuthenticator
from flockmq.auth.scram import Verifier
from flockmq.auth.unknown_user_hashes import UnknownUserHashes
from flockmq.auth.unknown_user_iterations import UnknownUserIterations
from flockmq.auth.user_revocation import disabled, enabled
from flockmq.bounds import JWT_MAX_BYTES, LOGINS_OF_NAME_MAX, PASSWORD_MAX_BYTES
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import (
    BuiltInSettings,
    CertificateSettings,
    FailedLoginsSettings,
    JwtSettings,
    Pbkdf2Settings,
    RedisAuthSettings,
)
from flockmq.config.values import Secret
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ClientCertificate as PeerCertificate
from flockmq.rlog.schema import User
from unit.broker.auth.harness import attempt, proved

DENIED = LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, "test")
Answer = Verdict | Callable[[], Coroutine[None, None, Verdict]]


class Link:
    """Answers what it is told."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        self.asked += 1
        return self.answer() if callable(self.answer) else self.answer

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def decided(chain: Chain, tried: Attempt) -> Outcome:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    chain.authenticate(tried, done.set_result)
    return await done


def at_once(chain: Chain, tried: Attempt) -> Outcome:
    """No loop is needed for what is in memory."""
    outcomes: list[Outcome] = []
    chain.authenticate(tried, outcomes.append)
    (outcome,) = outcomes
    return outcome


def later(verdict: Verdict) -> Callable[[], Coroutine[None, None, Verdict]]:
    async def answer() -> Verdict:
        await asyncio.sleep(0)
        return verdict

    return answer


@pytest.mark.parametrize("slow", [False, True])
async def test_the_first_that_knows_the_client_decides(slow: bool) -> None:
    def link(verdict: Verdict) -> Link:
        return Link(later(verdict) if slow else verdict)

    first, second, third = link(Pass.UNKNOWN), link(Granted(b"jo", is_superuser=True)), link(DENIED)
    outcome = await decided(Chain([first, second, third], None), attempt(username="jo", password="x"))
    assert outcome.reason == Reason.SUCCESS
    assert outcome.principal is not None
    assert (outcome.principal.username, outcome.principal.superuser) == (b"jo", True)
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)
    refused = await decided(Chain([first, third, second], None), attempt(username="jo", password="x"))
    assert refused == Outcome(Reason.BAD_USER_NAME_OR_PASSWORD)


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        ([Pass.UNKNOWN], Reason.BAD_USER_NAME_OR_PASSWORD),
        ([Pass.UNKNOWN, Pass.UNAVAILABLE], Reason.SERVER_UNAVAILABLE),
        ([Pass.UNAVAILABLE, Pass.BUSY], Reason.SERVER_BUSY),
    ],
)
def test_a_client_that_nobody_knows_isnt_let_in(passes: list[Pass], reason: Reason) -> None:
    links: list[Authenticator] = [Link(one) for one in passes]
    assert at_once(Chain(links, None), attempt(username="jo", password="x")) == Outcome(reason)
    assert at_once(Chain(links, True), attempt(username="jo", password="x")) == Outcome(reason), "it gave a name"
    nameless = at_once(Chain(links, True), attempt())
    assert (nameless.principal is None) == (passes != [Pass.UNKNOWN]), "a service might have said no"


def test_who_is_unknown_and_who_has_a_wrong_password_hear_the_same() -> None:
    tried = attempt(username="jo", password="x")
    unknown, wrong = at_once(Chain([Link(Pass.UNKNOWN)], None), tried), at_once(Chain([Link(DENIED)], None), tried)
    assert unknown == wrong


def is_anonymous(outcome: Outcome) -> bool:
    return outcome.principal is not None and outcome.principal.username == b""


def test_anonymous_clients() -> None:
    local, remote = attempt(host="127.0.0.1"), attempt(host="192.0.2.1")
    no = Outcome(Reason.NOT_AUTHORIZED)
    nobody: list[Authenticator] = [Link(Pass.UNKNOWN)]
    assert is_anonymous(at_once(Chain([], None), local))
    assert is_anonymous(at_once(Chain([], None), attempt(host=""))), "a Unix socket"
    balanced = attempt(host="127.0.0.1")
    balanced.peer.is_balanced = True
    assert at_once(Chain([], None), balanced).reason == Reason.NOT_AUTHORIZED, "a balancer's own machine is another one"
    assert at_once(Chain([], None), remote) == no
    assert is_anonymous(at_once(Chain([], True), remote))
    assert at_once(Chain([], False), local) == no
    assert at_once(Chain(nobody, None), local) == no
    assert is_anonymous(at_once(Chain(nobody, True), remote))
    named = at_once(Chain([], None), attempt(username="jo", host="127.0.0.1"))
    assert named.principal is not None
    assert named.principal.username == b"jo"


def test_each_anonymous_client_is_somebody_else() -> None:
    first, second = (at_once(Chain([], True), attempt()) for _ in range(2))
    assert first.principal is not second.principal


def no_exchange(_: Attempt) -> ScramExchange:
    raise AssertionError("nobody asked for one")


def test_nobody_has_a_name_by_saying_it_where_names_are_checked_by_an_exchange() -> None:
    chain = Chain([], True, scram=no_exchange)
    assert at_once(chain, attempt(username="admin", password="wrong")).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert is_anonymous(at_once(chain, attempt()))


def at(wall_s: float) -> Clock:
    return Clock(lambda: 0.0, lambda: wall_s)


def test_what_ran_out_already_lets_nobody_in() -> None:
    tried = attempt(username="jo", password="x")
    granted = Granted(b"jo", expires_at_s=100.0)
    assert at_once(Chain([Link(granted)], None, clock=at(99.0)), tried).reason == Reason.SUCCESS
    assert at_once(Chain([Link(granted)], None, clock=at(100.0)), tried).reason >= 0x80


async def test_a_defect_of_a_link_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> Verdict:
        raise RuntimeError("a defect")

    assert await decided(Chain([Link(broken)], None), attempt(username="jo", password="x")) == Outcome(
        Reason.SERVER_UNAVAILABLE
    )
    assert "a defect" in caplog.text


def test_a_defect_that_shows_at_once_lets_nobody_in_either(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> NoReturn:
        raise RuntimeError("a defect")

    assert at_once(Chain([Link(broken)], True), attempt()) == Outcome(Reason.SERVER_UNAVAILABLE)
    assert "a defect" in caplog.text


async def test_refusals_are_logged_sparingly_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    chain = Chain([Link(DENIED)], None, slow_down=FailedLoginsSettings(enable=False))
    for _ in range(100):
        at_once(chain, attempt(username="jo", password="geheim"))
    assert chain.results["denied"] == 100
    assert len(caplog.records) == 10
    assert "geheim" not in caplog.text


# --- users in the log -----------------------------------------------------------------------------------------------

CHEAP = Pbkdf2Settings(iterations=4096)
UNKNOWN = UnknownUserHashes(decoy(CHEAP), lambda: b"pepper")


class Users:
    def __init__(self, pool: HashPool) -> None:
        self.users = {"jo": User(made(b"pw", CHEAP), "", is_superuser=True)}
        passwords = Passwords(pool, VerifiedPasswords())
        self.by_name = Chain([BuiltInAuthenticator(BuiltInSettings(), self.users.get, passwords, UNKNOWN)], None)
        self.by_id = Chain(
            [BuiltInAuthenticator(BuiltInSettings(user_id_type="clientid"), self.users.get, passwords, UNKNOWN)], None
        )


async def test_a_user_is_let_in_with_its_password_only(pool: HashPool) -> None:
    users = Users(pool)
    outcome = await decided(users.by_name, attempt(username="jo", password="pw"))
    assert outcome.principal is not None
    assert outcome.principal.superuser
    for username, password in (("jo", "PW"), ("jo", ""), ("ann", "pw"), ("jo", None), ("jo", "x" * 10_000)):
        outcome = await decided(users.by_name, attempt(username=username, password=password))
        assert outcome.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert (await decided(users.by_id, attempt(client_id="jo", password="pw"))).reason == Reason.SUCCESS
    assert (await decided(users.by_id, attempt(client_id="x", username="jo", password="pw"))).reason >= 0x80


async def test_a_token_longer_than_a_password_is_asked_about_behind_authenticators_of_passwords(pool: HashPool) -> None:
    passwords = Passwords(pool, VerifiedPasswords())
    stored = {"mqtt_user:jo": [made(b"pw", CHEAP).encode(), None]}

    async def hmget(key: str, fields: list[str]) -> list[bytes | None]:
        return stored.get(key, [None, None])

    in_redis = RedisAuthenticator(
        RedisAuthSettings(url="redis://127.0.0.1", password_hash_algorithm=CHEAP), "here", passwords, SYSTEM
    )
    in_redis._client = cast(Any, SimpleNamespace(hmget=hmget))
    tokens = JwtSettings(algorithm="hmac-based", secret=Secret("s" * 32))
    token = jwt.encode({"acl": {"pub": [f"{number}/x" for number in range(500)]}}, "s" * 32, "HS256")
    assert PASSWORD_MAX_BYTES < len(token) <= JWT_MAX_BYTES
    for first in (BuiltInAuthenticator(BuiltInSettings(), Users(pool).users.get, passwords, UNKNOWN), in_redis):
        chain = Chain([first, JwtAuthenticator(tokens, "there")], None)
        assert (await decided(chain, attempt(username="ann", password=token))).reason == Reason.SUCCESS
        refused = await decided(chain, attempt(username="jo", password=token))
        assert refused.reason == Reason.BAD_USER_NAME_OR_PASSWORD, "the first one knows this user"
    assert not pool.hashed


async def test_who_is_known_by_its_client_id_has_it_as_its_user_name_whatever_name_it_sends(pool: HashPool) -> None:
    by_id = Users(pool).by_id
    for username in ("boss", "jo", None):
        for _ in ("with a hash", "recognized again"):
            outcome = await decided(by_id, attempt(client_id="jo", username=username, password="pw"))
            assert outcome.principal is not None
            assert (outcome.principal.username, outcome.principal.user_id) == (b"jo", b"jo")


async def test_an_unknown_user_costs_as_many_hashes_as_a_known_one(pool: HashPool) -> None:
    users = Users(pool)
    await decided(users.by_name, attempt(username="jo", password="wrong"))
    known = pool.hashed
    await decided(users.by_name, attempt(username="nobody", password="wrong"))
    assert pool.hashed == 2 * known


async def test_a_disabled_user_costs_and_hears_what_a_wrong_password_does(pool: HashPool) -> None:
    users = Users(pool)
    await decided(users.by_name, attempt(username="jo", password="pw"))
    right = users.users["jo"]
    users.users["jo"] = disabled(right)
    outcome = await decided(users.by_name, attempt(username="jo", password="pw"))
    assert (outcome.reason, pool.hashed) == (Reason.BAD_USER_NAME_OR_PASSWORD, 2)
    users.users["jo"] = enabled(users.users["jo"])
    assert users.users["jo"] == right
    assert at_once(users.by_name, attempt(username="jo", password="pw")).reason == Reason.SUCCESS


@pytest.mark.parametrize("meanwhile", [None, disabled(User(made(b"pw", CHEAP))), User(made(b"other", CHEAP))])
async def test_a_user_who_changes_while_its_password_is_hashed_isnt_let_in(
    pool: HashPool, meanwhile: User | None
) -> None:
    users = Users(pool)
    outcome = asyncio.ensure_future(decided(users.by_name, attempt(username="jo", password="pw")))
    await asyncio.sleep(0)
    if meanwhile is None:
        del users.users["jo"]
    else:
        users.users["jo"] = meanwhile
    assert (await outcome).reason == Reason.BAD_USER_NAME_OR_PASSWORD


VERIFIER = str(Verifier.made("pw", 1, b"salt"))


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (User("", VERIFIER), Reason.SUCCESS),
        (None, Reason.BAD_USER_NAME_OR_PASSWORD),
        (disabled(User("", VERIFIER)), Reason.BAD_USER_NAME_OR_PASSWORD),
        (User("", str(Verifier.made("other", 1, b"salt"))), Reason.BAD_USER_NAME_OR_PASSWORD),
    ],
)
def test_a_user_who_changes_amid_an_exchange_isnt_let_in(meanwhile: User | None, reason: Reason) -> None:
    users = {"jo": User("", VERIFIER)}
    iterations = UnknownUserIterations(1)
    chain = Chain([], None, lambda tried: ScramExchange(users.get, iterations, lambda: b"pepper", None, tried))
    exchange = chain.exchange(b"SCRAM-SHA-256", attempt())
    assert exchange is not None
    first = b"n,,n=jo,r=nonce"
    challenge = chain.feed(exchange, first)
    assert isinstance(challenge, bytes)
    users.pop("jo")
    if meanwhile is not None:
        users["jo"] = meanwhile
    outcome = chain.feed(exchange, proved("pw", first, challenge))
    assert isinstance(outcome, Outcome)
    assert outcome.reason == reason


async def test_who_comes_back_costs_no_hash_until_the_password_changes(pool: HashPool) -> None:
    users = Users(pool)
    await decided(users.by_name, attempt(username="jo", password="pw"))
    assert at_once(users.by_name, attempt(username="jo", password="pw")).reason == Reason.SUCCESS
    assert pool.hashed == 1
    users.users["jo"] = User(made(b"new", CHEAP))
    assert (await decided(users.by_name, attempt(username="jo", password="pw"))).reason >= 0x80
    assert pool.hashed == 2


@pytest.mark.parametrize(
    ("username", "password", "reason"),
    [
        ("jo", "pw", Reason.SUCCESS),
        ("jo", "wrong", Reason.BAD_USER_NAME_OR_PASSWORD),
        ("nobody", "pw", Reason.BAD_USER_NAME_OR_PASSWORD),
    ],
)
async def test_a_fleet_of_one_user_that_comes_at_once_costs_one_hash(
    username: str, password: str, reason: Reason
) -> None:
    pool = HashPool(threads=1, room=1)
    chain = Users(pool).by_name
    fleet = [attempt(f"c{n}", username, password, f"192.0.{n // 250}.{n % 250}") for n in range(2000)]
    outcomes = await asyncio.gather(*(decided(chain, one) for one in fleet))
    assert {outcome.reason for outcome in outcomes} == {reason}
    assert pool.hashed == 1
    pool.close()


async def test_logins_of_different_users_share_no_hash_whether_there_are_such_users_or_not(pool: HashPool) -> None:
    users = Users(pool)
    users.users["ann"] = User(made(b"pw", CHEAP))
    for names in (("jo", "ann"), ("nobody", "none")):
        before = pool.hashed
        await asyncio.gather(*(decided(users.by_name, attempt(username=name, password="x")) for name in names))
        assert pool.hashed == before + 2


async def test_a_full_pool_is_said_to_be_busy() -> None:
    pool = HashPool(threads=1, room=1)
    users = Users(pool)
    guesses = [attempt(username="jo", password=f"wrong {number}") for number in range(3)]
    outcomes = await asyncio.gather(*(decided(users.by_name, guess) for guess in guesses))
    assert sorted(outcome.reason for outcome in outcomes) == [
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.SERVER_BUSY,
    ]
    pool.close()


# --- certificates ---------------------------------------------------------------------------------------------------


def test_a_verified_certificate_is_a_user_name() -> None:
    held = PeerCertificate("meter-1", "CN=meter-1,O=Plant")
    by_cn, by_dn = (
        Chain([CertificateAuthenticator(CertificateSettings(username=what))], None) for what in ("cn", "dn")
    )
    assert at_once(by_cn, attempt()).reason == Reason.NOT_AUTHORIZED
    one, other = at_once(by_cn, attempt(certificate=held)), at_once(by_dn, attempt(certificate=held))
    assert one.principal is not None
    assert other.principal is not None
    assert (one.principal.username, other.principal.username) == (b"meter-1", b"CN=meter-1,O=Plant")
    nameless = at_once(by_cn, attempt(certificate=PeerCertificate("", "O=Plant")))
    assert nameless.reason == Reason.NOT_AUTHORIZED


def test_a_certificate_can_bind_the_client_id() -> None:
    held = PeerCertificate("meter-1", "CN=meter-1")
    link = CertificateAuthenticator(CertificateSettings())
    chain = Chain([BoundToClientIds(link, ClientIds("${cert_common_name}"))], None)
    assert at_once(chain, attempt("meter-1", certificate=held)).reason == Reason.SUCCESS
    assert at_once(chain, attempt("meter-2", certificate=held)).reason == Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert at_once(chain, attempt("", certificate=held)).client_id == b"meter-1"


# --- who must wait --------------------------------------------------------------------------------------------------


def test_who_guesses_must_wait_whatever_it_says_then() -> None:
    clock = Stopped()
    link = Link(DENIED)
    chain = Chain([link], None, clock=clock.clock, slow_down=FailedLoginsSettings(max_count=3))
    guesses = [at_once(chain, attempt(f"c{number}", "jo", "guess")) for number in range(10)]
    assert [outcome.reason for outcome in guesses] == 3 * [Reason.BAD_USER_NAME_OR_PASSWORD] + 7 * [
        Reason.CONNECTION_RATE_EXCEEDED
    ]
    assert link.asked == 3, "nothing is looked at"
    assert chain.results == {"denied": 3, "slowed": 7}
    link.answer = Granted(b"jo")
    assert at_once(chain, attempt("c", "jo", "right")).reason == Reason.CONNECTION_RATE_EXCEEDED
    assert at_once(chain, attempt("c", "ann", "right")).reason == Reason.SUCCESS
    assert at_once(chain, attempt("c", "jo", "right", host="192.0.2.2")).reason == Reason.SUCCESS
    clock.now_s += 1.0
    assert at_once(chain, attempt("c", "jo", "right")).reason == Reason.SUCCESS


async def test_logins_that_take_time_are_tried_a_few_at_a_time() -> None:
    asked = asyncio.Event()

    async def slow() -> Verdict:
        await asked.wait()
        return DENIED

    link = Link(slow)
    chain = Chain([link], None, slow_down=FailedLoginsSettings(max_count=3))
    guesses = [asyncio.ensure_future(decided(chain, attempt("c", "jo", f"{n}"))) for n in range(200)]
    await asyncio.sleep(0)
    assert link.asked == LOGINS_OF_NAME_MAX
    asked.set()
    reasons = [outcome.reason for outcome in await asyncio.gather(*guesses)]
    assert reasons.count(Reason.BAD_USER_NAME_OR_PASSWORD) == LOGINS_OF_NAME_MAX
    await asyncio.sleep(0)
    assert not chain.failed_logins._under_way


async def test_a_fleet_of_one_user_at_one_address_is_one_guess(pool: HashPool) -> None:
    chain = Users(pool).by_name
    fleet = [asyncio.ensure_future(decided(chain, attempt(f"c{n}", "jo", "pw"))) for n in range(500)]
    outcomes = await asyncio.gather(*fleet)
    assert {outcome.reason for outcome in outcomes} == {Reason.SUCCESS}
    await asyncio.sleep(0)
    assert not chain.failed_logins._under_way


class Stopped:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.clock = Clock(lambda: self.now_s, lambda: self.now_s)
