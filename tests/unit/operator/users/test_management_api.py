"""The operator's client and the broker's own management server, over HTTP."""

import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp import web

from flockmq_operator.spec import Rule
from flockmq_operator.users.management_api import Access, ManagementApi, NodeAway, NodeRefuses, connected
from flockmq_operator.users.password import Password
from flockmq_operator.users.spec import UserRule
from ports import free_port
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode

PASSWORD = Password("pw", "1")


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.Response]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server that answers everything so; gives its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with managed(ToldNode(), FakeLog()) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def api(url: str) -> AsyncIterator[ManagementApi]:
    async with connected(Access(url, KEY, None)) as api:
        yield api


@pytest.mark.parametrize("name", ["jo", "jo/ö", "a b?c#d%2Fe", "..x", "+", "\U0001f600" * 128])
async def test_a_user_of_any_name_comes_changes_and_goes(api: ManagementApi, name: str) -> None:
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
async def test_rules_come_back_as_they_were_put(api: ManagementApi, name: str) -> None:
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


async def test_a_no_has_the_nodes_sentence(api: ManagementApi, url: str) -> None:
    await api.create("jo", PASSWORD, superuser=False, disabled=False)
    with pytest.raises(NodeRefuses, match="user 'jo' is there already") as refusal:
        await api.create("jo", PASSWORD, superuser=False, disabled=False)
    assert refusal.value.status == 409
    with pytest.raises(NodeRefuses, match=r"^rules: .*nonsense"):
        await api.put_rules("jo", [UserRule("deny", ipaddr=("nonsense",))])
    async with connected(Access(url, "wrong", None)) as stranger:
        with pytest.raises(NodeRefuses, match="the API key is missing, wrong") as refusal:
            await stranger.user("jo")
    assert refusal.value.status == 401


async def test_a_node_that_does_not_answer_is_away_and_asked_once() -> None:
    async with connected(Access(f"http://127.0.0.1:{free_port()}", KEY, None)) as api:
        for _ in range(2):
            with pytest.raises(NodeAway, match=r"http://127.0.0.1:\d+ doesn't answer: "):
                await api.user("jo")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (503, '{"error": "too many passwords wait to be hashed"}', "too many passwords wait"),
        (507, '{"error": "the log is full"}', "the log is full"),
        (500, "<html>", "HTTP 500"),
        (200, "<html>", "makes no sense"),
        (200, '{"user_id": "jo"}', "makes no sense"),
        (200, "x" * 300_000, "more than 262144 bytes"),
    ],
)
async def test_what_is_no_proper_answer_is_one_that_may_come_later(status: int, body: str, why: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with answering(answer) as port, connected(Access(f"http://127.0.0.1:{port}", KEY, None)) as api:
        with pytest.raises(NodeAway, match=why):
            await api.user("jo")


async def test_the_key_follows_no_redirect() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with answering(answer) as port, connected(Access(f"http://127.0.0.1:{port}", KEY, None)) as api:
        with pytest.raises(NodeRefuses, match="HTTP 307"):
            await api.create("jo", PASSWORD, superuser=False, disabled=False)
    assert asked == ["/api/v1/users"]


async def test_only_a_node_that_shows_the_certificate_of_the_secret_gets_the_key() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        asked.append(str(request.transport.get_extra_info("peername")))
        return web.Response(status=404, text='{"error": "there is no user"}')

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate = trustme.CA().issue_cert("any.example")
    certificate.configure_cert(tls)
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    async with answering(answer, tls) as port:
        right = Access(f"https://127.0.0.1:{port}", KEY, hashlib.sha256(der).digest())
        async with connected(right) as api:
            for _ in range(2):
                assert await api.user("jo") is None
        async with connected(right._replace(fingerprint=hashlib.sha256(b"another").digest())) as api:
            with pytest.raises(NodeAway, match="shows another certificate than its Secret holds"):
                await api.user("jo")
    assert asked[0] == asked[1] != "", "by one connection"
    assert len(asked) == 2


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(Access("http://c", KEY, None))
