"""Bodies that are compressed, aren't what they say, or end amid it: one short line at most, and an answer as others."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode

BY_KEY: Final = b"Authorization: Bearer %b\r\n" % KEY.encode()
ASKED: Final = ((b"GET /livez", b""), (b"POST /api/v1/users", b""), (b"POST /api/v1/users", BY_KEY))
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    async with managed(ToldNode(), FakeLog(), KEY) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def answered(stream: Stream, *said: bytes) -> tuple[int, Any]:
    """The status, and what stands in the body's JSON."""
    reader, writer = stream
    writer.write(b"".join(said))
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    body = await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
    return int(head.split()[1]), json.loads(body) if "application/json" in head else body


@pytest.mark.parametrize(("asked", "key"), ASKED)
@pytest.mark.parametrize("body", [b"abcde", gzip.compress(bytes(10_000_000))])
@pytest.mark.parametrize("coding", [b"gzip", b"x, gzip", b"\xff"])
async def test_nothing_that_is_compressed_is_unpacked(
    stream: Stream, caplog: pytest.LogCaptureFixture, asked: bytes, key: bytes, body: bytes, coding: bytes
) -> None:
    head = b"%b HTTP/1.1\r\nHost: x\r\n%bContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    status, said = await answered(stream, head % (asked, key, coding, len(body)), body)
    assert (status, "isn't taken here; send the body as it is" in said["error"]) == (415, True)
    assert await answered(stream, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") == (200, b"alive\n")
    assert not caplog.records


@pytest.mark.parametrize("line", [b"GET http://[::1\xff HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET /%ff HTTP/1.1"])
async def test_what_is_no_text_is_answered_too(stream: Stream, caplog: pytest.LogCaptureFixture, line: bytes) -> None:
    status, said = await answered(stream, line, b"\r\nHost: x\r\n", BY_KEY, b"\r\n")
    assert status in (400, 404)
    assert said["error"]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("line", [b"GET http://[::1\xff HTTP/1.1", b"no request", b"GET /livez HTTP/1.1\r\nX"])
async def test_what_is_no_request_isnt_told_what_answers(stream: Stream, line: bytes) -> None:
    reader, writer = stream
    writer.write(line + b"\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b"\r\nserver: flockmq\r\n" in head
    assert b"aiohttp" not in head
    assert b"python" not in head


async def test_what_is_as_it_is_may_say_so(stream: Stream) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"
    assert await answered(stream, head) == (200, b"alive\n")


@pytest.mark.parametrize(("asked", "key"), ASKED)
async def test_a_body_that_isnt_what_it_says_is_told_so(
    stream: Stream, caplog: pytest.LogCaptureFixture, asked: bytes, key: bytes
) -> None:
    head = b"%b HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (asked, key)
    status, said = await answered(stream, head, b"zz\r\nabcde\r\n0\r\n\r\n")
    assert status == 400
    assert said == {"error": "this can't be read as a request: Invalid character in chunk size"}
    assert [record.getMessage() for record in caplog.records] == [
        "Error handling request from 127.0.0.1: BadHttpMessage"
    ]


@pytest.mark.parametrize(("asked", "key"), ASKED)
@pytest.mark.parametrize("rest", [b'{"us', b""])
async def test_who_leaves_amid_a_body_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture, asked: bytes, key: bytes, rest: bytes
) -> None:
    async with managed(ToldNode(), FakeLog(), KEY) as port:
        before = asyncio.all_tasks()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%b HTTP/1.1\r\nHost: x\r\n%bContent-Length: 200\r\n\r\n%b" % (asked, key, rest))
        if not key:
            await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.close()
        async with asyncio.timeout(5):
            while asyncio.all_tasks() - before:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
    assert not caplog.records
