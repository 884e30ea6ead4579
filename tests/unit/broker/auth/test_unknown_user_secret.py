"""What users are told who don't exist doesn't tell that they don't, whatever becomes of the cluster's key."""

from __future__ import annotations

from flockmq.auth.service import AuthService
from flockmq.auth.unknown_user_secret import UnknownUserSecret
from flockmq.config.auth_settings import AuthenticationSettings, AuthorizationSettings, FlappingSettings, ScramSettings
from flockmq.rlog.schema import SECRETS
from unit.broker.auth.harness import FakeLog, attempt


def node(log: FakeLog, key: bytes) -> tuple[AuthService, UnknownUserSecret]:
    """One that was started with this key of the cluster."""
    secret = UnknownUserSecret(log.as_rlog(), key, log.may_write, lambda count: b"%d" % len(log.written) * count)
    chain = AuthenticationSettings(chain=(ScramSettings(),))
    made = AuthService(
        chain,
        AuthorizationSettings(),
        FlappingSettings(),
        log.as_rlog(),
        unknown_user_secret=secret,
        is_leader=lambda: True,
    )
    return made, secret


def salt(auth: AuthService, name: bytes = b"ghost") -> bytes:
    exchange = auth.chain.exchange(b"SCRAM-SHA-256", attempt())
    assert exchange is not None
    said = exchange.feed(b"n,,n=" + name + b",r=x")
    assert isinstance(said, bytes)
    return said.split(b",")[1]


async def test_salts_of_nobody_stay_when_the_clusters_key_is_replaced() -> None:
    log = FakeLog()
    before, secret = node(log, b"former key")
    await secret.make()
    after, secret = node(log, b"new key")
    await secret.make()
    assert salt(before) == salt(after)
    assert salt(before) != salt(before, b"spook")
    assert len(log.written) == 1, "it is made once"


async def test_before_all_nodes_know_of_the_row_it_is_the_key_that_they_share() -> None:
    log = FakeLog()
    log.version = 1
    (one, secret), (other, _) = node(log, b"key"), node(log, b"key")
    await secret.make()
    assert log.written == []
    assert salt(one) == salt(other)
    log.put([SECRETS.put("scram", b"made by a later leader")])
    assert salt(one) == salt(other)


async def test_the_leader_makes_it_where_the_chain_has_scram() -> None:
    log = FakeLog()
    auth, _ = node(log, b"key")
    await auth._clean()
    assert log.tables.secrets.get("scram") is not None
