"""Connections to the management port that say nothing whole, plain and amid TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from flockmq import listening_sockets
from flockmq.bounds import MANAGEMENT_UNWANTED_MAX_BYTES
from flockmq.management import answers, connections
from flockmq.management.connections import ManagementConnections
from unit.broker.transport.pki import Pki

MOST: Final = 4
ASK: Final = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
ASK_MUCH: Final = b"GET /much HTTP/1.1\r\nHost: here\r\n%s\r\n"
MUCH_BYTES: Final = 32 * 1024 * 1024
"""More than sockets hold."""
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_CONNECTIONS_MAX", MOST)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connections, answers):
        monkeypatch.setattr(module, "MANAGEMENT_REQUEST_MAX_S", 0.1)
    monkeypatch.setattr(connections, "MANAGEMENT_ANSWER_MAX_S", 0.1)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def tls(pki: Pki) -> ssl.SSLContext:
    """The server's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.server("localhost"))
    return context


class Clients:
    """Of one server."""

    def __init__(self, address: tuple[str, int], kept: ManagementConnections) -> None:
        self._address = address
        self._kept = kept
        self._streams: list[Stream] = []

    async def open(self, tls: ssl.SSLContext | None = None, by: str = "127.0.0.1") -> Stream:
        named = None if tls is None else "localhost"
        local = (by, 0)
        stream = await asyncio.open_connection(*self._address, ssl=tls, server_hostname=named, local_addr=local)
        self._streams.append(stream)
        return stream

    def say_hello(self, tls: ssl.SSLContext, by: str = "127.0.0.1") -> socket.socket:
        """Sends a whole ClientHello, before the server does anything."""
        said = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            tls.wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost").do_handshake()
        made = socket.create_connection(self._address, source_address=(by, 0))
        made.sendall(said.read())
        return made

    async def are_gone(self) -> None:
        """The server has ended them all."""
        async with asyncio.timeout(5):
            while self._kept._open:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

    def close(self) -> None:
        for _, writer in self._streams:
            writer.transport.abort()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Clients]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here\n")

    async def answer_much(request: web.Request) -> web.Response:
        return web.Response(body=bytes(MUCH_BYTES))

    async def read(request: web.Request) -> web.Response:
        try:
            await answers.body_of(request, str)
        except answers.RequestRefused as error:
            return web.Response(status=error.status)
        return web.Response()

    listening = listening_sockets.bound("127.0.0.1", 0, "management.listen")
    with closing(listening), closing(ManagementConnections(listening, tls)) as kept:
        app = web.Application(middlewares=[kept.noting])
        app.router.add_get("/", answer)
        app.router.add_get("/much", answer_much)
        app.router.add_post("/", read)
        runner = web.AppRunner(app)
        await runner.setup()
        assert runner.server is not None
        with kept.accepting(runner.server), closing(Clients(listening.getsockname(), kept)) as clients:
            yield clients
        await runner.cleanup()


async def asked(stream: Stream) -> bytes:
    reader, writer = stream
    writer.write(ASK)
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(len("here\n"))


async def ends(stream: Stream) -> bool:
    """Whether the server ends it, by FIN or by RST."""
    try:
        async with asyncio.timeout(5):
            return await stream[0].read() == b""
    except ConnectionResetError:
        return True


async def stays(stream: Stream) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await stream[0].read(1)
    except TimeoutError:
        return True
    return False


async def test_one_more_ends_the_oldest_that_never_finished_a_request() -> None:
    async with serving() as clients:
        silent = [await clients.open() for _ in range(MOST)]
        silent[0][1].write(ASK[:-2])
        for _ in range(2):
            assert await asked(await clients.open()) == b"here\n"
        assert await ends(silent[0])
        assert await ends(silent[1])
        assert await stays(silent[2])
        assert await stays(silent[3])


async def test_who_was_answered_lately_outlasts_who_came_later_and_said_nothing() -> None:
    async with serving() as clients:
        probe = await clients.open()
        silent = [await clients.open() for _ in range(MOST - 1)]
        assert await asked(probe) == b"here\n"
        another = await clients.open()
        assert await ends(silent[0])
        assert await asked(probe) == await asked(another) == b"here\n"


async def test_tls_that_is_never_begun_takes_no_ones_place(pki: Pki, tls: ssl.SSLContext) -> None:
    async with serving(tls) as clients:
        silent = [await clients.open() for _ in range(2 * MOST)]
        probe = await clients.open(pki.trusting())
        assert await asked(probe) == b"here\n"
        assert [await ends(stream) for stream in silent[: MOST + 1]] == [True] * (MOST + 1)
        assert await stays(silent[-1])


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("secured", [False, True])
async def test_who_never_finishes_a_request_is_ended(tls: ssl.SSLContext, secured: bool) -> None:
    async with serving(tls if secured else None) as clients:
        silent = await clients.open()
        begun = await clients.open()
        begun[1].write(b"\x16\x03\x01\x02\x00" if secured else ASK[:-2])
        assert await ends(silent)
        assert await ends(begun)


@pytest.mark.usefixtures("hurried")
async def test_a_body_that_never_comes_is_answered() -> None:
    async with serving() as clients:
        reader, writer = await clients.open()
        writer.write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hurried")
async def test_who_was_answered_may_stay_and_ask_again() -> None:
    async with serving() as clients:
        probe = await clients.open()
        assert await asked(probe) == b"here\n"
        await asyncio.sleep(0.2)
        assert await asked(probe) == b"here\n"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
async def test_who_never_reads_its_answer_is_ended(pki: Pki, tls: ssl.SSLContext, secured: bool, header: bytes) -> None:
    async with serving(tls if secured else None) as clients:
        reader, writer = await clients.open(pki.trusting() if secured else None)
        writer.write(ASK_MUCH % header)
        await reader.readuntil(b"\r\n\r\n")
        await clients.are_gone()


@pytest.mark.parametrize("secured", [False, True])
async def test_who_goes_on_with_a_body_that_nobody_reads_is_ended(pki: Pki, tls: ssl.SSLContext, secured: bool) -> None:
    async with serving(tls if secured else None) as clients:
        reader, writer = await clients.open(pki.trusting() if secured else None)
        writer.write(ASK[:-2] + b"Content-Length: %d\r\n\r\n" % 2**40)
        assert await reader.readuntil(b"here\n")
        gone = asyncio.ensure_future(clients.are_gone())
        said_bytes = 0
        while not gone.done():
            writer.write(bytes(64 * 1024))
            said_bytes += 64 * 1024
            await asyncio.sleep(0.001)
        await gone
        assert said_bytes > MANAGEMENT_UNWANTED_MAX_BYTES


async def test_a_request_behind_an_answer_isnt_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_UNWANTED_MAX_BYTES", 1000)
    async with serving() as clients:
        stream = await clients.open()
        for _ in range(100):
            assert await asked(stream) == b"here\n"


@pytest.mark.parametrize("secured", [False, True])
async def test_unread_answers_that_are_too_large_together_end_the_oldest(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, tls: ssl.SSLContext, secured: bool
) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_UNREAD_MAX_BYTES", MUCH_BYTES)
    async with serving(tls if secured else None) as clients:
        first, second = [await clients.open(pki.trusting() if secured else None) for _ in range(2)]
        for reader, writer in (first, second):
            writer.write(ASK_MUCH % b"")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await first[0].readexactly(MUCH_BYTES)
        await second[0].readuntil(b"\r\n\r\n")
        await second[0].readexactly(MUCH_BYTES)


async def test_who_reads_a_large_answer_has_all_of_it() -> None:
    async with serving() as clients:
        reader, writer = await clients.open()
        writer.write(ASK_MUCH % b"")
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(MUCH_BYTES)) == MUCH_BYTES
        assert await asked((reader, writer)) == b"here\n"


async def test_a_new_one_ends_one_of_the_address_that_has_the_most() -> None:
    async with serving() as clients:
        other = await clients.open(by="127.0.0.2")
        silent = [await clients.open() for _ in range(MOST)]
        assert await ends(silent[0])
        assert await asked(other) == b"here\n"
        assert await stays(silent[1])


class Handshakes:
    """In which iterations of the event loop ClientHellos were read."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.iteration = 0
        self.read: list[int] = []
        tls.sni_callback = self._note

    def _note(self, *_: object) -> None:
        self.read.append(self.iteration)

    async def count(self) -> None:
        while True:
            self.iteration += 1
            await asyncio.sleep(0)

    async def are_read(self, hellos: int) -> None:
        counting = asyncio.ensure_future(self.count())
        async with asyncio.timeout(5):
            while len(self.read) < hellos:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        counting.cancel()


async def test_nobody_answers_the_ClientHello_of_who_has_gone(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, tls: ssl.SSLContext
) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_CONNECTIONS_MAX", 100)
    handshakes = Handshakes(tls)
    async with serving(tls) as clients:
        for _ in range(30):
            clients.say_hello(pki.trusting()).close()
        probe = await clients.open(pki.trusting())
        assert await asked(probe) == b"here\n"
        assert len(handshakes.read) == 1


async def test_who_goes_before_its_turn_gets_no_answer_and_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, tls: ssl.SSLContext
) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_HANDSHAKES_TOGETHER_MAX", 0)
    handshakes = Handshakes(tls)
    async with serving(tls) as clients:
        hostile = [clients.say_hello(pki.trusting()) for _ in range(MOST)]
        while len(clients._kept._open) < MOST:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        for one in hostile[1:]:
            one.close()
        monkeypatch.setattr(connections, "MANAGEMENT_HANDSHAKES_TOGETHER_MAX", 1)
        with closing(hostile[0]):
            assert await asked(await clients.open(pki.trusting())) == b"here\n"
            assert len(clients._kept._open) == 2, "the first one, though it is the oldest"
    assert len(handshakes.read) == 2


async def test_few_handshakes_begin_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, tls: ssl.SSLContext
) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_CONNECTIONS_MAX", 100)
    begun: list[int] = []
    handshakes = Handshakes(tls)

    def begin(connection: connections._Connection) -> None:
        begun.append(handshakes.iteration)
        begin_one(connection)

    begin_one = connections._Connection.begin
    monkeypatch.setattr(connections._Connection, "begin", begin)
    async with serving(tls) as clients:
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(closing(clients.say_hello(pki.trusting())))
            await handshakes.are_read(20)
    assert len(begun) == 20
    assert max(begun.count(iteration) for iteration in begun) <= 4, "the counter's step may come before or behind"


async def test_addresses_take_turns(monkeypatch: pytest.MonkeyPatch, pki: Pki, tls: ssl.SSLContext) -> None:
    monkeypatch.setattr(connections, "MANAGEMENT_CONNECTIONS_MAX", 100)
    begun: list[bytes] = []

    def begin(connection: connections._Connection) -> None:
        begun.append(connection.address)
        begin_one(connection)

    begin_one = connections._Connection.begin
    monkeypatch.setattr(connections._Connection, "begin", begin)
    handshakes = Handshakes(tls)
    async with serving(tls) as clients:
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(closing(clients.say_hello(pki.trusting())))
            stack.enter_context(closing(clients.say_hello(pki.trusting(), by="127.0.0.2")))
            await handshakes.are_read(21)
    assert begun.index(b"127.0.0.2") <= 2
