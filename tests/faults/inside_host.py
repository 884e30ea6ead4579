"""What is done to a host happens, and ends: run by test_host.py, inside a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from faults import network, sandbox, shim
from faults.host import Host
from faults.supervised import Command

ECHO: Final = """
import asyncio

async def echo(reader, writer):
    while data := await reader.read(1):
        if data == b"!":
            raise SystemExit("told to")
        writer.write(data)

async def main():
    await (await asyncio.start_server(echo, "0.0.0.0", 7)).serve_forever()

asyncio.run(main())
"""
SYNC: Final = "import os; file = open('synced', 'w'); os.fsync(file.fileno())"
DAY_S: Final = 86_400.0
DELAY_S: Final = 0.2
NEVER_S: Final = 1.0
"""What takes longer is taken for what never comes."""


class EchoHost(Host):
    def __init__(self, logs: Path) -> None:
        self.ends: list[tuple[int, str]] = []
        programs = {"echo": lambda: Command([sys.executable, "-c", ECHO], {})}
        super().__init__("echo", "10.77.0.9", logs, 1024 * 1024, programs, self._ended)

    def _ended(self, host: Host, code: int, last_words: str) -> None:
        self.ends.append((code, last_words))

    async def run(self, program: str) -> tuple[int, str]:
        """A program of this host: its exit code, and what it says."""
        made = await asyncio.create_subprocess_exec(
            *self.wire.inside(sys.executable, "-c", program),
            env=sandbox.environment() | self.shim.environment(),
            cwd=self.data,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said = (await made.communicate())[0].decode().strip()
        return made.returncode or 0, said

    async def now_s(self) -> float:
        return float((await self.run("import time; print(time.time())"))[1])

    async def says(self, byte: bytes = b"x") -> float:
        """A byte there and back: how long it took. Raises TimeoutError, ConnectionError."""
        async with asyncio.timeout(NEVER_S):
            reader, writer = await asyncio.open_connection(self.address, 7)
            with contextlib.closing(writer):
                began = time.monotonic()
                writer.write(byte)
                await reader.readexactly(1)
                return time.monotonic() - began

    async def until_it_says(self) -> None:
        while True:
            try:
                await self.says()
            except (TimeoutError, ConnectionError):
                await asyncio.sleep(0.02)
            else:
                return


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sandbox.furnish()
    network.furnish()
    shim.build()
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def only_host(logs: Path) -> EchoHost:
    return EchoHost(logs)


@pytest.fixture
async def host(only_host: EchoHost) -> AsyncIterator[EchoHost]:
    await only_host.start()
    await only_host.until_it_says()
    yield only_host
    await only_host.kill()
    for file in only_host.data.iterdir():
        file.unlink()


async def test_a_clock_jumps_drifts_and_is_right_again(host: EchoHost) -> None:
    host.shift_clock(-DAY_S)
    assert await host.now_s() == pytest.approx(time.time() - DAY_S, abs=60.0)
    host.shift_clock(0.0, 1000.0)
    await asyncio.sleep(0.1)
    assert await host.now_s() > time.time() + 60.0
    host.shift_clock(0.0)
    assert await host.now_s() == pytest.approx(time.time(), abs=60.0)


async def test_one_fsync_fails(host: EchoHost) -> None:
    host.fail_disk()
    assert "Input/output error" in (await host.run(SYNC))[1]
    assert await host.run(SYNC) == (0, "")


async def test_an_fsync_stalls_until_it_may_go_on(host: EchoHost) -> None:
    host.stall_disk(True)
    syncing = asyncio.create_task(host.run(SYNC))
    await asyncio.wait([syncing], timeout=NEVER_S)
    assert not syncing.done()
    host.stall_disk(False)
    assert await syncing == (0, "")


async def test_a_full_disk_takes_nothing(host: EchoHost) -> None:
    host.fill()
    assert "No space left" in (await host.run("open('more', 'w').write('x' * 10000)"))[1]
    host.clear()
    assert await host.run("open('more', 'w').write('x' * 10000)") == (0, "")


async def test_the_largest_file_has_another_bit(host: EchoHost) -> None:
    large, small = host.data / "large", host.data / "small"
    large.write_bytes(bytes(1000))
    small.write_bytes(bytes(10))
    host.corrupt()
    assert sum(byte.bit_count() for byte in large.read_bytes()) == 1
    assert small.read_bytes() == bytes(10)


async def test_a_slow_link_takes_longer_both_ways(host: EchoHost) -> None:
    host.slow_down(DELAY_S)
    assert await host.says() > 2 * DELAY_S
    host.slow_down(0.0)
    assert await host.says() < 2 * DELAY_S


async def test_what_a_link_loses_does_not_come(host: EchoHost) -> None:
    host.lose(100.0)
    with pytest.raises(TimeoutError):
        await host.says()
    host.lose(0.0)
    await host.says()


async def test_a_link_is_cut_as_often_as_it_is_not_mended(host: EchoHost) -> None:
    host.wire.cut(network.LAB)
    host.wire.cut(network.LAB)
    host.wire.mend(network.LAB)
    with pytest.raises(TimeoutError):
        await host.says()
    host.wire.mend(network.LAB)
    await host.says()


async def test_a_cut_holds_on_a_slow_link(host: EchoHost) -> None:
    host.slow_down(DELAY_S)
    host.wire.cut(network.LAB)
    with pytest.raises(TimeoutError):
        await host.says()
    host.wire.mend(network.LAB)
    host.slow_down(0.0)


async def test_it_is_so_strained_that_it_stands_still_again_and_again(host: EchoHost) -> None:
    host.strain(0.2)
    assert max([await host.says() for _ in range(5)]) > 0.1
    host.strain(0.0)
    await host.until_it_says()


async def test_who_stands_still_answers_when_he_goes_on(host: EchoHost) -> None:
    host.pause()
    assert not host.is_running
    with pytest.raises(TimeoutError):
        await host.says()
    host.resume()
    await host.says()


async def test_who_ends_by_himself_is_told_of_and_started_again(host: EchoHost) -> None:
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await host.says(b"!")
    await host.until_it_says()
    assert host.ends == [(1, "told to")]


async def test_who_is_killed_stays_down(host: EchoHost) -> None:
    before = list(host.ends)
    await host.kill()
    await asyncio.sleep(0.5)  # longer than until an end that nobody asked for is followed by a start
    assert not host.is_running
    assert host.ends == before
