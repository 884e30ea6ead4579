"""Routes over real HTTP, with a node that is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
from aiohttp import web

from flockmq.auth.admin import Admin
from flockmq.auth.bans import Bans
from flockmq.auth.hash_pool import HashPool
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import Pbkdf2Settings
from flockmq.config.values import Address, Secret
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.management import guard
from flockmq.management.answers import VIEWS
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.quota_admin import QuotaAdmin
from flockmq.management.server import serve
from flockmq.management.view import Views
from flockmq.rlog.schema import BANS
from unit.broker.auth.harness import FakeLog

ANYWHERE = Address("127.0.0.1", 0)
KEY = "a unit test's key of 32 letters+"


def token_bytes(number: int) -> bytes:
    return SYSTEM_ENTROPY.token_bytes(number)


def managed(
    node: object, log: FakeLog, key: str | None = KEY, listen: Address = ANYWHERE, *, users_matter: bool = True
) -> AbstractAsyncContextManager[int]:
    """A management server of a node over a log; gives its port."""
    pool, bans = HashPool(), Bans()
    log.on_change(BANS.name, bans)
    quotas = QuotaAdmin(log.as_rlog(), log.may_write, lambda: users_matter)
    admin = Admin(log.as_rlog(), bans, pool, Pbkdf2Settings(iterations=4096), None, SYSTEM, users_matter=users_matter)
    keys = ApiKeys(log.as_rlog(), None if key is None else Secret(key), log.may_write, SYSTEM, token_bytes)
    audit = AuditLog("core-1", log.as_rlog(), log.may_write, SYSTEM, token_bytes)
    return serve(views(node), listen, admin, quotas, keys, audit)


def views(node: object) -> Views:
    """`node` is every part of one."""
    return Views(*(node,) * len(Views._fields))._replace(samples=getattr(node, "samples", list))


@asynccontextmanager
async def serving(routes: web.RouteTableDef, node: object) -> AsyncIterator[aiohttp.ClientSession]:
    """`node` is every part of one. Gives a client of theirs."""
    app = web.Application(middlewares=[guard.errors_as_json])
    app[VIEWS] = views(node)
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as http:
        yield http
    await runner.cleanup()
