"""A command in a container: what is asked of an API server, and how each way to fail is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from kubernetes.aio import client

from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.kubectl import execute as execute_module
from flockmq_operator.kubectl.execute import PROTOCOL, Ended, execute

EXITED = b'\x03{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}'


class Server:
    def __init__(self) -> None:
        self.refuses = 0
        """The HTTP status; 0: it doesn't."""
        self.messages = [b'\x03{"status": "Success"}']
        self.delay_s = 0.0
        self.asked: list[tuple[str, list[str]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            return web.json_response({"message": "no"}, status=self.refuses)
        self.asked.append((request.path, request.query.getall("command")))
        stream = web.WebSocketResponse(protocols=(PROTOCOL,))
        await stream.prepare(request)
        await asyncio.sleep(self.delay_s)
        for message in self.messages:
            await stream.send_bytes(message)
        await stream.close()
        return stream


@pytest.fixture
async def server() -> Server:
    return Server()


@asynccontextmanager
async def listening(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[Kube]:
    async with (
        listening(server) as port,
        Kube(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))) as kube,
    ):
        yield kube


async def run(kube: Kube) -> Ended:
    return await execute(kube, "fleet", "demo-core-0", "flockmq", ["flockmq", "ctl", "a&b c"])


async def test_each_word_arrives_as_it_is_and_the_output_comes_by_its_channel(kube: Kube, server: Server) -> None:
    server.messages = [b"\x01", b"\x01one ", b"\x02wrong", b"\x01two\xc3\xa4", b"\x09?", *server.messages]
    assert await run(kube) == Ended(0, "one twoä", "wrong")
    assert server.asked == [("/api/v1/namespaces/fleet/pods/demo-core-0/exec", ["flockmq", "ctl", "a&b c"])]


async def test_its_exit_code_is_known(kube: Kube, server: Server) -> None:
    server.messages = [EXITED]
    assert await run(kube) == Ended(7, "", "")


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([b"\x01one"], "ended before the command did"),
        ([b'\x03{"status": "Failure", "message": "executable not found"}'], "no command can be run in it: .*not found"),
        ([b"\x03gone"], "no command can be run in it: gone"),
    ],
)
async def test_a_command_that_did_not_end_is_unreachable(
    kube: Kube, server: Server, messages: list[bytes], said: str
) -> None:
    server.messages = messages
    with pytest.raises(Unreachable, match=f"^pod demo-core-0 in namespace fleet: .*{said}"):
        await run(kube)


@pytest.mark.parametrize(("status", "said"), [(403, "the right to create and get pods/exec"), (404, "there is none")])
async def test_a_no_is_refused(kube: Kube, server: Server, status: int, said: str) -> None:
    server.refuses = status
    with pytest.raises(Refused, match=f"^pod demo-core-0 in namespace fleet: .*{said}"):
        await run(kube)


async def test_a_container_that_does_not_run_is_unreachable(kube: Kube, server: Server) -> None:
    server.refuses = 500
    with pytest.raises(Unreachable, match="HTTP 500, as while its container isn't running"):
        await run(kube)


async def test_neither_time_nor_output_is_without_bounds(
    kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute_module, "OUTPUT_MAX_BYTES", 100)
    server.messages = [b"\x01" + b"x" * 60] * 2
    with pytest.raises(Unreachable, match="wrote more than 100 bytes"):
        await run(kube)
    monkeypatch.setattr(execute_module, "COMMAND_S", 0.05)
    server.delay_s = 0.5
    with pytest.raises(Unreachable, match="didn't end within 0 s"):
        await run(kube)


async def test_an_api_server_shows_the_certificate_that_the_kubeconfig_asks_for(server: Server, tmp_path: Path) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.internal").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    async with listening(server, tls) as port:
        asked = client.Configuration(host=f"https://127.0.0.1:{port}", ssl_ca_cert=str(tmp_path / "ca.crt"))
        async with Kube(client.ApiClient(asked)) as kube:
            with pytest.raises(Unreachable, match=r"no command can be run in it: .*certificate"):
                await run(kube)
        asked.tls_server_name = "api.internal"
        async with Kube(client.ApiClient(asked)) as kube:
            assert (await run(kube)).code == 0


async def test_no_server_is_unreachable() -> None:
    async with Kube(client.ApiClient(client.Configuration(host="http://127.0.0.1:1"))) as kube:
        with pytest.raises(Unreachable, match="pod demo-core-0 in namespace fleet: no command can be run in it: "):
            await run(kube)
