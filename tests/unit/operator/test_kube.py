"""Requests to an API server, over HTTP: what is asked, and how each way to fail is told."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client

from flockmq_operator import kube as kube_module
from flockmq_operator.kube import Kube, NotServed, Refused, Unreachable

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo", "namespace": "ns", "uid": "u"}}


class Server:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, object]] = []
        self.accepted: list[str] = []
        self.status, self.body = 200, "{}"
        self.delay_s = 0.0
        self.silence: asyncio.Event | None = None
        """Until when an answer that has begun doesn't end."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        asked = (request.method, request.path_qs, request.headers.get("Content-Type", ""), json.loads(body or "null"))
        self.asked.append(asked)
        self.accepted.append(request.headers.get("Accept", ""))
        await asyncio.sleep(self.delay_s)
        if self.silence:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(self.body.encode())
            await self.silence.wait()
            return response
        return web.Response(status=self.status, text=self.body, content_type="application/json")


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[Kube]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with Kube(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"))) as kube:
        yield kube
    await runner.cleanup()


async def test_apply_is_server_side_and_forced(kube: Kube, server: Server) -> None:
    await kube.apply(SERVICE)
    await kube.apply({**SERVICE, "kind": "MqttCluster"}, "status")
    assert [asked[:3] for asked in server.asked] == [
        (
            "PATCH",
            "/api/v1/namespaces/ns/services/demo?fieldManager=flockmq-operator&force=true",
            "application/apply-patch+yaml",
        ),
        (
            "PATCH",
            "/apis/flockmq.io/v1alpha1/namespaces/ns/mqttclusters/demo/status?fieldManager=flockmq-operator&force=true",
            "application/apply-patch+yaml",
        ),
    ]
    assert server.asked[0][3] == SERVICE


async def test_a_list_is_by_label_and_its_elements_say_what_they_are(kube: Kube, server: Server) -> None:
    server.body = '{"items": [{"metadata": {"name": "a"}}]}'
    found = await kube.list("StatefulSet", "ns", {"a/b": "c", "d": "e"})
    assert found == [{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"}}]
    assert server.asked[0][1] == "/apis/apps/v1/namespaces/ns/statefulsets?labelSelector=a/b%3Dc,d%3De"
    await kube.list("Pod", "ns", {"a": "b"}, limit=9)
    assert server.asked[-1][1] == "/api/v1/namespaces/ns/pods?labelSelector=a%3Db&limit=9"
    server.body = '{"items": null}'
    assert await kube.list("Secret", "ns", {}, metadata_only=True) == []


async def test_only_the_very_object_is_deleted_and_gone_is_fine(kube: Kube, server: Server) -> None:
    for server.status in (200, 404, 409):
        await kube.delete(SERVICE)
    body = server.asked[0][3]
    assert isinstance(body, dict)
    assert body["preconditions"] == {"uid": "u"}


async def test_this_very_object_is_patched(kube: Kube, server: Server) -> None:
    patch = {**SERVICE, "spec": {"externalName": None}}
    await kube.patch(patch)
    method, path, content_type, body = server.asked[0]
    assert (method, content_type) == ("PATCH", "application/merge-patch+json")
    assert path.startswith("/api/v1/namespaces/ns/services/demo?")
    assert body == patch


async def test_what_is_not_there_is_none(kube: Kube, server: Server) -> None:
    server.status, server.body = 404, '{"message": "not found"}'
    assert await kube.get("Service", "ns", "demo") is None


@pytest.mark.parametrize("name", ["../../kube-system/secrets/key", "..", "a/b", "a?watch=true", "a#b", "%2e", "", "A"])
async def test_a_name_that_no_object_can_have_leads_nowhere(kube: Kube, server: Server, name: str) -> None:
    """Specs name Secrets and claims: whoever writes one may not have the operator read in other namespaces."""
    assert await kube.get("Secret", "ns", name) is None
    assert server.asked == []


async def test_a_watch_tells_of_metadata_alone_from_a_version_on(kube: Kube, server: Server) -> None:
    server.body = '{"metadata": {"resourceVersion": "7"}, "items": []}'
    assert await kube.newest_version("Secret", "ns") == "7"
    large = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "a", "annotations": {"x": "y" * 300_000}}}})
    server.body = f'{large}\n{{"type": "BOOKMARK"}}\n'
    events = [event async for event in kube.watch("Secret", "ns", "7")]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert server.accepted[-1] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert server.asked[-1][1].startswith("/api/v1/namespaces/ns/secrets?watch=true&allowWatchBookmarks=true&")
    assert server.asked[-1][1].endswith("&resourceVersion=7")
    assert [event async for event in kube.watch("Secret", None, "7")] == events
    assert server.asked[-1][1].startswith("/api/v1/secrets?")


async def test_a_watch_that_fails_says_how(kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.status, server.body = 403, '{"message": "secrets is forbidden"}'
    with pytest.raises(Refused, match=r"^secrets is forbidden$"):
        await anext(kube.watch("Secret", "ns", "7"))
    server.status, server.body = 200, "<html>\n"
    with pytest.raises(Unreachable, match="GET /api/v1/namespaces/ns/secrets"):
        await anext(kube.watch("Secret", "ns", "7"))
    monkeypatch.setattr(kube_module, "EVENT_MAX_BYTES", 1000)
    server.body = '{"type": "' + "x" * 2000
    with pytest.raises(Unreachable, match="an event of more than 1000 bytes"):
        await anext(kube.watch("Secret", "ns", "7"))


async def test_a_watch_ends_that_is_silent_for_long_for_its_connection_may_be_dead(
    kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_module, "WATCH_IDLE_S", 0.3)
    server.body, server.silence = '{"type": "BOOKMARK"}\n', asyncio.Event()
    async with asyncio.timeout(10):
        assert [event["type"] async for event in kube.watch("Secret", "ns", "7")] == ["BOOKMARK"]
    server.silence.set()


@pytest.mark.parametrize("status", [400, 403, 409, 422])
async def test_a_no_is_refused_with_the_servers_sentence(kube: Kube, server: Server, status: int) -> None:
    server.status, server.body = status, '{"message": "quota exceeded"}'
    with pytest.raises(Refused, match=r"^quota exceeded$") as refusal:
        await kube.apply(SERVICE)
    assert refusal.value.status == status


@pytest.mark.parametrize("words", kube_module.OF_ONE_OBJECT)
async def test_an_error_of_one_object_is_refused_though_it_is_the_servers(
    kube: Kube, server: Server, words: bytes
) -> None:
    server.status, server.body = 500, f'{{"message": "{words.decode()}: spec.template"}}'
    with pytest.raises(Refused, match=f"^{words.decode()}: spec"):
        await kube.apply(SERVICE)


@pytest.mark.parametrize(("status", "body"), [(500, "{}"), (503, "down"), (429, "{}"), (200, "<p>"), (404, "<p>")])
async def test_no_proper_answer_is_unreachable(kube: Kube, server: Server, status: int, body: str) -> None:
    server.status, server.body = status, body
    with pytest.raises(Unreachable, match=f"HTTP {status}"):
        await kube.get("Service", "ns", "demo")


async def test_a_kind_that_is_not_served_is_told_from_a_server_that_is_away(kube: Kube, server: Server) -> None:
    server.status, server.body = 404, "404 page not found\n"
    with pytest.raises(NotServed):
        await kube.list("MqttCluster", "ns", {})


async def test_no_answer_in_time_is_unreachable(kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_module, "REQUEST_S", 0.05)
    server.delay_s = 0.5
    with pytest.raises(Unreachable, match="TimeoutError"):
        await kube.get("Service", "ns", "demo")


async def test_no_server_is_unreachable() -> None:
    async with Kube(client.ApiClient(client.Configuration(host="http://127.0.0.1:1"))) as kube:
        with pytest.raises(Unreachable, match="GET /api/v1/namespaces/ns/services/demo: "):
            await kube.get("Service", "ns", "demo")
