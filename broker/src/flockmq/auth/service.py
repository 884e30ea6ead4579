"""Builds a node's authentication, authorization and bans from its configuration.

auth = AuthService(config.authentication, config.authorization, config.flapping, rlog, …)
await auth.start()                            # before the node accepts clients
auth.chain.authenticate(attempt, done)        # and auth.bans, auth.authorizer, auth.admin
auth.disconnected(username, client_id, host)  # when an authenticated client disconnects, if auth.minds_flapping
await auth.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flockmq import tasks
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
from flockmq.auth.flapping import FlappingDetector
from flockmq.auth.hash_pool import Busy, HashPool, VerifiedPasswords
from flockmq.auth.http import HttpAuthenticator
from flockmq.auth.jwt import JwtAuthenticator
from flockmq.auth.redis import RedisAuthenticator
from flockmq.auth.rule_sources import HttpRules, LogRules, Source, file_rules
from flockmq.auth.stored_authorization import DeferredAuthorization
from flockmq.auth.unknown_user_hashes import UnknownUserHashes
from flockmq.auth.unknown_user_iterations import UnknownUserIterations
from flockmq.auth.unknown_user_secret import UnknownUserSecret
from flockmq.auth.user_import import UserImport
from flockmq.auth.user_revocation import UserRevocation, is_disabled
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
    RedisAuthSettings,
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
    """`cluster_clock` gives the cluster's time, which decides when bans expire. `clock` is this machine's; it decides
    about times from outside, such as a token's expiry. The constructor raises ConfigError."""

    def __init__(
        self,
        authentication: AuthenticationSettings,
        authorization: AuthorizationSettings,
        flapping: FlappingSettings,
        rlog: Rlog,
        *,
        unknown_user_secret: UnknownUserSecret,
        is_leader: Callable[[], bool],
        clock: Clock = SYSTEM,
        cluster_clock: Clock = SYSTEM,
    ) -> None:
        self._rlog = rlog
        self._is_leader = is_leader
        self._clock = clock
        self._cluster_clock = cluster_clock
        self.pool = HashPool()
        self.verified = VerifiedPasswords()
        self._knows_all_users = authentication.asks_only_the_log
        scram = _scram(authentication)
        self._unknown_user_secret = None if scram is None else unknown_user_secret
        self.algorithm = _algorithm(authentication)
        self.bans = Bans(cluster_clock.wall)
        self._unknown_user_hashes = UnknownUserHashes(hashing.decoy(self.algorithm), unknown_user_secret.get)
        self.user_revocation = UserRevocation(self._user)
        self.chain = Chain(
            list(self._links(authentication)),
            authentication.allow_anonymous,
            None if scram is None else self._exchanges(scram, unknown_user_secret),
            clock,
            authentication.failed_logins,
        )
        self.authorizer = Authorizer(authorization, list(self._sources(authorization)), clock.monotonic)
        self.deferred_authorization = DeferredAuthorization(self.bans, self._user, self.authorizer)
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
        self.minds_flapping = flapping.enable
        self._flapping = FlappingDetector(flapping)
        self._ban_s = flapping.ban_time
        self._flapping_bans = 0
        self._user_import: UserImport | None = None
        if authentication.bootstrap_file is not None:
            self._user_import = UserImport(
                authentication.bootstrap_file,
                authentication.bootstrap_type,
                self.admin,
                rlog,
                clock,
                replace=authentication.bootstrap_replace,
            )
            self._user_import.check()
        self._housekeeper: asyncio.Task[None] | None = None
        rlog.on_change(USERS.name, self.user_revocation)
        rlog.on_change(USERS.name, self._unknown_user_hashes.spread)
        rlog.on_change(BANS.name, self.bans)
        rlog.on_change(RULES.name, self.authorizer)

    async def start(self) -> None:
        """Call it before the node accepts clients, so that the users of its file are in the log when the node is ready.
        Raises ConfigError."""
        await self.chain.start()
        await self.authorizer.start()
        if self._user_import is not None:
            with contextlib.suppress(StorageError, Busy):  # the leader tries again every AUTH_HOUSEKEEPING_S
                await self._user_import.import_users()
        self._housekeeper = asyncio.ensure_future(self._keep_house())

    async def stop(self) -> None:
        await tasks.end(self._housekeeper)
        self.pool.close()
        await self.chain.stop()
        await self.authorizer.stop()

    def configure_flapping(self, flapping: FlappingSettings) -> None:
        """Other settings, for clients that connect from now on."""
        self.minds_flapping, self._ban_s = flapping.enable, flapping.ban_time
        self._flapping.configure(flapping)

    def is_gone(self, username: bytes) -> bool:
        """Whether nobody can log in as this user any more. True only if all users are in the log, and this one is
        missing or disabled."""
        if not self._knows_all_users or username == b"":
            return False
        user = self._user(username.decode())
        return user is None or is_disabled(user)

    def disconnected(self, username: bytes, client_id: bytes, host: str) -> None:
        """Count the disconnect of an authenticated client, and ban it if it flaps. Called only if `minds_flapping`."""
        client = username.decode(), client_id.decode(), network(host)
        if self._flapping.disconnected(client, self._clock.monotonic()):
            now_s = self._cluster_clock.wall()
            text = "user %r as client %r from %s comes and goes too often: banned for %g s"
            log.warning(text, *client, self._ban_s)
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

    # Building the parts.

    def _links(self, authentication: AuthenticationSettings) -> Iterator[Authenticator]:
        passwords = Passwords(self.pool, self.verified)
        for place, settings in enumerate(authentication.chain):
            where = f"authentication.chain[{place}]"
            if isinstance(settings, ScramSettings):
                continue  # for clients that name its Authentication Method; see `_exchanges`
            link, client_ids = self._link(settings, where, passwords), _client_ids(settings, where)
            yield link if client_ids is None else BoundToClientIds(link, client_ids)

    def _link(self, settings: AuthenticatedAtOnce, where: str, passwords: Passwords) -> Authenticator:
        match settings:
            case BuiltInSettings():
                return BuiltInAuthenticator(settings, self._user, passwords, self._unknown_user_hashes)
            case JwtSettings():
                return JwtAuthenticator(settings, where, self._clock)
            case HttpSettings():
                return HttpAuthenticator(settings, where, self._clock)
            case RedisAuthSettings():
                return RedisAuthenticator(settings, where, passwords, self._clock)
            case CertificateSettings():
                return CertificateAuthenticator(settings)

    def _sources(self, authorization: AuthorizationSettings) -> Iterator[Source | HttpRules]:
        for place, source in enumerate(authorization.sources):
            where = f"authorization.sources[{place}]"
            match source:
                case FileSourceSettings():
                    yield file_rules(source, where)
                case BuiltInSourceSettings():
                    yield LogRules(self._rules)
                case HttpSourceSettings():
                    yield HttpRules(source, where, self._clock)

    def _exchanges(
        self, scram: tuple[str, ScramSettings], unknown_user_secret: UnknownUserSecret
    ) -> Callable[[Attempt], ScramExchange]:
        """Returns a factory of SCRAM exchanges."""
        where, link = scram
        iterations = UnknownUserIterations(link.iteration_count)
        self._rlog.on_change(USERS.name, iterations.spread)
        return partial(ScramExchange, self._user, iterations, unknown_user_secret.get, _client_ids(link, where))

    def _user(self, user_id: str) -> User | None:
        return self._rlog.tables.users.get(user_id)

    def _rules(self, key: tuple[str, str]) -> bytes | None:
        return self._rlog.tables.rules.get(key)

    # Housekeeping by the leader.

    async def _keep_house(self) -> None:
        logged = ""
        while True:
            if self._is_leader():
                try:
                    await self._clean()
                    logged = ""
                except (ConfigError, StorageError, Busy) as error:
                    if str(error) != logged:  # log each error once
                        logged = str(error)
                        log.error("%s", error)
                except Exception:
                    log.exception("users couldn't be imported, or bans removed")
            await asyncio.sleep(AUTH_HOUSEKEEPING_S)

    async def _clean(self) -> None:
        await self.admin.sweep_bans()
        if self._unknown_user_secret is not None:
            await self._unknown_user_secret.make()
        if self._user_import is not None:
            await self._user_import.import_users()


def _scram(authentication: AuthenticationSettings) -> tuple[str, ScramSettings] | None:
    """The name and the settings of the chain's SCRAM entry, if it has one."""
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
    """The algorithm for new password hashes."""
    built_in = (link for link in authentication.chain if isinstance(link, BuiltInSettings))
    return next((link.password_hash_algorithm for link in built_in), Argon2idSettings())


def _report(written: asyncio.Future[StreamId]) -> None:
    if not written.cancelled() and (error := written.exception()):
        log.warning("a ban couldn't be written: %s", error)
