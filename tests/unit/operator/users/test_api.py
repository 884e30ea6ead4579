"""What the operator asks for MqttUsers, and the broker's own management server, over HTTP."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from flockmq_operator.management_api import Access, NodeRefuses, connected
from flockmq_operator.spec import Rule
from flockmq_operator.users.api import UserApi
from flockmq_operator.users.password import Password
from flockmq_operator.users.quotas import UserQuotas
from flockmq_operator.users.spec import UserRule
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode

PASSWORD = Password("pw", "1")


@pytest.fixture
async def api() -> AsyncIterator[UserApi]:
    async with (
        managed(ToldNode(), FakeLog()) as port,
        connected(Access(f"http://127.0.0.1:{port}", KEY, None), UserApi) as api,
    ):
        yield api


@pytest.mark.parametrize("name", ["jo", "jo/ö", "a b?c#d%2Fe", "..x", "+", "\U0001f600" * 128])
async def test_a_user_of_any_name_comes_changes_and_goes(api: UserApi, name: str) -> None:
    assert await api.user(name) is None
    made = await api.create(name, PASSWORD, superuser=True, disabled=False)
    assert made == await api.user(name)
    assert (made.is_superuser, made.is_disabled) == (True, False)
    assert made.version
    changed = await api.change(name, None, superuser=False, disabled=True)
    assert (changed.is_superuser, changed.is_disabled) == (False, True)
    another = await api.change(name, Password("new", "2"), superuser=False, disabled=True)
    assert len({made.version, changed.version, another.version}) == 3
    for _ in range(2):
        await api.delete(name)
    assert await api.user(name) is None


@pytest.mark.parametrize("name", ["jo", "jo/ö"])
async def test_rules_come_back_as_they_were_put(api: UserApi, name: str) -> None:
    assert await api.rules(name) == ()
    rules = (
        UserRule("allow", "subscribe", ("a/#", "eq b"), clientid="x-*", ipaddr=("10.0.0.0/8",)),
        UserRule("allow", "publish", qos=(0, 2), retain=False),
        UserRule("deny"),
    )
    await api.put_rules(name, rules)
    assert await api.rules(name) == (
        Rule("allow", "subscribe", ("a/#", "eq b"), clientid="x-*", ipaddr=("10.0.0.0/8",)),
        Rule("allow", "publish", qos=(0, 2), retain=False),
        Rule("deny"),
    )
    for _ in range(2):
        await api.delete_rules(name)
    assert await api.rules(name) == ()


@pytest.mark.parametrize("name", ["jo", "jo/ö"])
async def test_quotas_come_back_as_they_were_put(api: UserApi, name: str) -> None:
    assert await api.quotas(name) == {}
    quotas = UserQuotas(3, "1.5KB", "infinity", 7, "2GB").told()
    await api.put_quotas(name, quotas)
    assert await api.quotas(name) == quotas
    await api.put_quotas(name, {"max_sessions": 1})
    assert await api.quotas(name) == {"max_sessions": 1}, "they replace one another"
    for _ in range(2):
        await api.delete_quotas(name)
    assert await api.quotas(name) == {}


async def test_quotas_that_the_node_refuses_are_named(api: UserApi) -> None:
    with pytest.raises(NodeRefuses, match=r"^quotas\.max_sessions: 0 must be a number of at least 1"):
        await api.put_quotas("jo", {"max_sessions": 0})


async def test_a_node_of_a_release_without_quotas_of_single_users_has_none_and_refuses_them_with_the_mend() -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/api/v1/quotas", ok)
    async with TestServer(app) as older, connected(Access(f"http://127.0.0.1:{older.port}", KEY, None), UserApi) as api:
        assert await api.quotas("jo") == {}
        await api.delete_quotas("jo")
        with pytest.raises(NodeRefuses, match=r"set a newer spec\.image there"):
            await api.put_quotas("jo", {"max_sessions": 1})


async def test_rules_that_the_node_refuses_are_named(api: UserApi) -> None:
    with pytest.raises(NodeRefuses, match=r"^rules: .*nonsense"):
        await api.put_rules("jo", [UserRule("deny", ipaddr=("nonsense",))])
