"""All parts of one node that say who may connect and do what, put together from its configuration.

auth = Auth(config.authentication, config.authorization, config.flapping, rlog, pepper=…, is_leader=…)
await auth.start()                        # before clients come
auth.chain.authenticate(attempt, done)    # and auth.bans, auth.authorizer, auth.admin
auth.disconnected(username, client_id, host)  # of each client that was let in, if auth.minds_flapping
await auth.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flockmq.auth import hashing
from flockmq.auth.addresses import network
from flockmq.auth.admin import Admin
from flockmq.auth.authenticator import Attempt, Authenticator
from flockmq.auth.authorizer import Authorizer
from flockmq.auth.bans import Bans, client_key
from flockmq.auth.built_in import BuiltInAuthenticator, Passwords, ScramExchange
from flockmq.auth.certificate import CertificateAuthenticator
from flockmq.auth.chain import Chain
from flockmq.auth.client_ids import BoundToClientIds, ClientIds
from flockmq.auth.deferred_authorization import Warrants
from flockmq.auth.flapping import FlappingDetector
from flockmq.auth.hash_pool import Busy, HashPool, Verified
from flockmq.auth.http import HttpAuthenticator
from flockmq.auth.jwt import JwtAuthenticator
from flockmq.auth.redis import RedisAuthenticator
from flockmq.auth.rule_sources import AskedRules, LogRules, Source, file_rules
from flockmq.auth.unknown_user_iterations import ScramIterations
from flockmq.auth.unknown_user_secret import Pepper
from flockmq.auth.user_import import Bootstrap
from flockmq.auth.user_revocation import Users, is_disabled
from flockmq.bounds import AUTH_HOUSEKEEPING_S
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import (
    Argon2idSettings,
    AuthenticatedAtOnce,
    AuthenticationSettings,
    AuthorizationSettings,
    BuiltInSettings,
    BuiltInSourceSettings,
    CertificateSettings,
    FileSourceSettings,
    FlappingSettings,
    HashAlgorithm,
    HttpSettings,
    HttpSourceSettings,
    JwtSettings,
    RedisSettings,
    ScramSettings,
)
from flockmq.config.auth_settings import Authenticator as AuthenticatorSettings
from flockmq.errors import ConfigError
from flockmq.redis.errors import StorageError
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, BANS, RULES, USERS, Ban, User
from flockmq.telemetry.sample import Sample

log: Final = logging.getLogger(__name__)


class AuthService:
    """`pepper`: the secret behind answers for unknown users. `cluster_clock`: its wall clock is the cluster's time, by
    which bans end. Times that outsiders say, such as a token's expiry, go by this machine's clock. Raises
    ConfigError."""

    def __init__(
        self,
        authentication: AuthenticationSettings,
        authorization: AuthorizationSettings,
        flapping: FlappingSettings,
        rlog: Rlog,
        *,
        pepper: Pepper,
        is_leader: Callable[[], bool],
        clock: Clock = SYSTEM,
        cluster_clock: Clock = SYSTEM,
    ) -> None:
        self._rlog = rlog
        self._is_leader = is_leader
        self._clock = clock
        self._cluster_clock = cluster_clock
        self.pool = HashPool()
        self.verified = Verified()
        self._knows_all_users = authentication.asks_only_the_log
        scram = _scram(authentication)
        self._pepper = None if scram is None else pepper
        self.algorithm = _algorithm(authentication)
        self.bans = Bans(cluster_clock.wall)
        self.users = Users(self._user)
        self.chain = Chain(
            list(self._links(authentication)),
            authentication.allow_anonymous,
            None if scram is None else self._exchanges(scram, pepper),
            clock,
            authentication.failed_logins,
        )
        self.authorizer = Authorizer(authorization, list(self._sources(authorization)), clock.monotonic)
        self.warrants = Warrants(self.bans, self._user, self.authorizer)
        iterations = None if scram is None else scram[1].iteration_count
        self.admin = Admin(
            rlog,
            self.bans,
            self.pool,
            self.algorithm,
            iterations,
            cluster_clock,
            users_matter=authentication.asks_the_log,
            rules_matter=authorization.asks_the_log,
        )
        self.minds_flapping: Final = flapping.enable
        self._flapping = FlappingDetector(flapping)
        self._ban_s = flapping.ban_time
        self._flapping_bans = 0
        self._bootstrap: Bootstrap | None = None
        if authentication.bootstrap_file is not None:
            self._bootstrap = Bootstrap(
                authentication.bootstrap_file,
                authentication.bootstrap_type,
                self.admin,
                rlog,
                clock,
                replace=authentication.bootstrap_replace,
            )
            self._bootstrap.check()
        self._housekeeper: asyncio.Task[None] | None = None
        rlog.on_change(USERS.name, self.users)
        rlog.on_change(BANS.name, self.bans)
        rlog.on_change(RULES.name, self.authorizer)

    async def start(self) -> None:
        """Call it before clients are let in, so that a ready node has the users of its file in the log. Raises
        ConfigError."""
        await self.chain.start()
        await self.authorizer.start()
        if self._bootstrap is not None:
            with contextlib.suppress(StorageError, Busy):  # then the leader does it, some seconds later
                await self._bootstrap.take_in()
        self._housekeeper = asyncio.ensure_future(self._keep_house())

    async def stop(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            await asyncio.gather(self._housekeeper, return_exceptions=True)
        self.pool.close()
        await self.chain.stop()
        await self.authorizer.stop()

    def is_gone(self, username: bytes) -> bool:
        """Whether nobody is let in as this user: only the log has users, and it has this one no more, or disabled."""
        if not self._knows_all_users or username == b"":
            return False
        user = self._user(username.decode())
        return user is None or is_disabled(user)

    def disconnected(self, username: bytes, client_id: bytes, host: str) -> None:
        """A connection of a client that was let in has ended. Called if flapping is detected."""
        client = username.decode(), client_id.decode(), network(host)
        if self._flapping.disconnected(client, self._clock.monotonic()):
            now_s = self._cluster_clock.wall()
            said = "user %r as client %r from %s comes and goes too often: banned for %g s"
            log.warning(said, *client, self._ban_s)
            self._flapping_bans += 1
            ban = Ban(now_s + self._ban_s, "flapping", "it came and went too often", now_s)
            written = self._rlog.submit(AUTH, [BANS.put(client_key(*client), ban)])
            written.add_done_callback(_report)

    def samples(self) -> Iterator[Sample]:
        for result, count in self.chain.results.items():
            yield Sample("flockmq_authentications", count, (result,))
        for result, count in self.authorizer.results.items():
            yield Sample("flockmq_authorizations", count, (result,))
        yield Sample("flockmq_failed_logins", len(self.chain.failed_logins))
        yield Sample("flockmq_bans", len(self.bans))
        yield Sample("flockmq_flapping_bans", self._flapping_bans)
        yield Sample("flockmq_queue_length", self.chain.waiting, ("authentications",))
        yield Sample("flockmq_queue_length", self.authorizer.waiting, ("authorizations",))
        yield Sample("flockmq_queue_length", self.pool.waiting, ("hashes",))

    # Putting together.

    def _links(self, authentication: AuthenticationSettings) -> Iterator[Authenticator]:
        passwords = Passwords(self.pool, self.verified, hashing.decoy(self.algorithm))
        for place, settings in enumerate(authentication.chain):
            where = f"authentication.chain[{place}]"
            if isinstance(settings, ScramSettings):
                continue  # is asked by those who ask for the method
            link, client_ids = self._link(settings, where, passwords), _client_ids(settings, where)
            yield link if client_ids is None else BoundToClientIds(link, client_ids)

    def _link(self, settings: AuthenticatedAtOnce, where: str, passwords: Passwords) -> Authenticator:
        match settings:
            case BuiltInSettings():
                return BuiltInAuthenticator(settings, self._user, passwords)
            case JwtSettings():
                return JwtAuthenticator(settings, where, self._clock)
            case HttpSettings():
                return HttpAuthenticator(settings, where, self._clock)
            case RedisSettings():
                return RedisAuthenticator(settings, where, passwords, self._clock)
            case CertificateSettings():
                return CertificateAuthenticator(settings)

    def _sources(self, authorization: AuthorizationSettings) -> Iterator[Source | AskedRules]:
        for place, source in enumerate(authorization.sources):
            where = f"authorization.sources[{place}]"
            match source:
                case FileSourceSettings():
                    yield file_rules(source, where)
                case BuiltInSourceSettings():
                    yield LogRules(self._rules)
                case HttpSourceSettings():
                    yield AskedRules(source, where, self._clock)

    def _exchanges(self, scram: tuple[str, ScramSettings], pepper: Pepper) -> Callable[[Attempt], ScramExchange]:
        """Makes one for each client that asks for the method."""
        where, link = scram
        iterations = ScramIterations(link.iteration_count)
        self._rlog.on_change(USERS.name, iterations)
        return partial(ScramExchange, self._user, iterations, pepper.get, _client_ids(link, where))

    def _user(self, user_id: str) -> User | None:
        return self._rlog.tables.users.get(user_id)

    def _rules(self, key: tuple[str, str]) -> bytes | None:
        return self._rlog.tables.rules.get(key)

    # What the leader does from time to time.

    async def _keep_house(self) -> None:
        said = ""
        while True:
            if self._is_leader():
                try:
                    await self._clean()
                    said = ""
                except (ConfigError, StorageError, Busy) as error:
                    if str(error) != said:  # once, not every few seconds
                        said = str(error)
                        log.error("%s", error)
                except Exception:
                    log.exception("users couldn't be taken in, or bans removed")
            await asyncio.sleep(AUTH_HOUSEKEEPING_S)

    async def _clean(self) -> None:
        await self.admin.sweep_bans()
        if self._pepper is not None:
            await self._pepper.make()
        if self._bootstrap is not None:
            await self._bootstrap.take_in()


def _scram(authentication: AuthenticationSettings) -> tuple[str, ScramSettings] | None:
    """Its place in the chain, if the chain has it."""
    links = enumerate(authentication.chain)
    return next(((f"authentication.chain[{n}]", link) for n, link in links if isinstance(link, ScramSettings)), None)


def _client_ids(link: AuthenticatorSettings, where: str) -> ClientIds | None:
    if link.clientid is None:
        return None
    try:
        return ClientIds(link.clientid)
    except ValueError as error:
        raise ConfigError(f"{where}.clientid: {error}") from None


def _algorithm(authentication: AuthenticationSettings) -> HashAlgorithm:
    """What passwords are hashed with from now on."""
    built_in = (link for link in authentication.chain if isinstance(link, BuiltInSettings))
    return next((link.password_hash_algorithm for link in built_in), Argon2idSettings())


def _report(written: asyncio.Future[StreamId]) -> None:
    if not written.cancelled() and (error := written.exception()):
        log.warning("a ban couldn't be written: %s", error)
