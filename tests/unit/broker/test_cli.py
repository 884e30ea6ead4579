"""The command as a user meets it: every mistake is one line on stderr and an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq import __version__, cli
from flockmq.cli import RUN_OPTIONS
from flockmq.config.sources import kind_of


def flockmq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "flockmq", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def one_error_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    assert [line for line in lines if "Traceback" in line] == []
    assert lines[-1].startswith("flockmq: error: ")
    assert len([line for line in lines if line.startswith("flockmq: error: ")]) == 1
    return lines[-1].removeprefix("flockmq: error: ")


def test_version_says_what_runs() -> None:
    expected = os.environ.get("EXPECT_BUILD", "interpreted")
    for arguments in (["--version"], ["version"]):
        done = flockmq(*arguments)
        assert done.returncode == 0
        assert done.stdout.startswith(f"flockmq {__version__} ({expected}, Python 3.")


def test_without_a_command_the_help_is_shown() -> None:
    done = flockmq()
    assert done.returncode == 2
    assert "usage: flockmq" in done.stdout


def test_every_option_of_run_sets_a_key_that_exists() -> None:
    assert all(kind_of(path) for path, _, _ in RUN_OPTIONS.values())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--listen", "nowhere"], "--listen: 'nowhere' isn't HOST:PORT"),
        (["run", "--role", "boss"], "--role: 'boss' must be core or replicant or single"),
        (["run", "--role", "core"], "redis.url: role core needs a Redis"),
        (["run", "--config", "/none/flockmq.toml"], "/none/flockmq.toml: can't be read: No such file or directory"),
        (["run", "--bogus"], "unrecognized arguments: --bogus"),
        (["dev", "--cores", "0"], "argument --cores: '0' must be a number from 1 to 32"),
        (["dev", "--port", "x"], "argument --port: invalid int value: 'x'"),
        (["dev", "--cores", "x"], "argument --cores: 'x' must be a number from 1 to 32"),
        (["run", "--workers", "0"], "argument --workers: '0' must be a number from 1 to 64, or auto"),
        (["run", "--workers", "many"], "argument --workers: 'many' must be a number from 1 to 64, or auto"),
        (["dance"], "argument COMMAND: invalid choice: 'dance'"),
    ],
)
def test_a_mistake_on_the_command_line_exits_with_2(arguments: list[str], expected: str) -> None:
    done = flockmq(*arguments)
    assert one_error_line(done).startswith(expected)
    assert done.returncode == 2


def test_an_unknown_key_in_the_file_exits_with_2_and_names_file_key_and_mend(tmp_path: Path) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text('[management]\nlissten = "127.0.0.1:1883"\n')
    done = flockmq("run", "--config", str(file))
    assert one_error_line(done) == f"{file}: management.lissten: unknown key; did you mean management.listen?"
    assert done.returncode == 2


def test_an_unknown_variable_exits_with_2() -> None:
    done = flockmq("run", FLOCKMQ_LISTENERS__TCP__DEFAULT__BNID="127.0.0.1:1883")
    assert one_error_line(done) == (
        "FLOCKMQ_LISTENERS__TCP__DEFAULT__BNID: unknown key; did you mean FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND?"
    )
    assert done.returncode == 2


def test_an_unreachable_redis_exits_with_3_and_never_shows_the_password() -> None:
    with socket.socket() as held:  # bound, not listening: nobody answers there
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        done = flockmq("run", "--redis", f"redis://:hunter2@127.0.0.1:{port}/0", FLOCKMQ_REDIS__CONNECT_TIMEOUT="0")
    assert one_error_line(done).startswith(f"redis.url: redis://127.0.0.1:{port}/0 can't be reached: ")
    assert "hunter2" not in done.stderr + done.stdout
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "key", "expected"),
    [
        (["--url", "nonsense", "users", "list"], "k", "--url: it doesn't begin with http:// or https://; a node's"),
        (["--url", "nonsense", "users", "list"], "k", "management address looks like http://127.0.0.1:18083"),
        (["--url", "http://:1", "users", "list"], "k", "--url: it names no host"),
        (["--url", "http://h:99999", "users", "list"], "k", "--url: its host or its port can't be used"),
        (["--url", "http://[::1", "users", "list"], "k", "--url: its host or its port can't be used"),
        (["--url", "http://a..b:1", "users", "list"], "k", "--url: its host or its port can't be used"),
        (["users", "show", "\udcff"], "k", "isn't UTF-8 text"),
        (["users", "list"], "k\nX: y", "FLOCKMQ_API_KEY: the key must be one line"),
        (["--url", "http://127.0.0.1:1", "users", "list"], "ключ", "can't be asked: Connection refused"),
        (["users", "add", "jo"], "k", "the password is empty"),
    ],
)
def test_ctl_says_every_mistake_in_one_line(arguments: list[str], key: str, expected: str) -> None:
    assert expected in one_error_line(flockmq("ctl", *arguments, FLOCKMQ_API_KEY=key))


async def test_a_signal_in_the_turn_in_which_a_timeout_runs_out_is_heard() -> None:
    limits: list[asyncio.Timeout] = []

    async def node() -> int:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    await asyncio.Event().wait()

    loop, task = asyncio.get_running_loop(), asyncio.create_task(node())
    await asyncio.sleep(0)
    limits[0].reschedule(loop.time())
    hurried: list[bool] = []
    end = cli._ending_once(task, lambda: hurried.append(True))
    loop.call_soon(end)
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert hurried == []
    end()
    assert hurried == [True], "who asks twice is in a hurry"


def test_what_an_earlier_release_left_for_all_to_read_is_tightened_first(tmp_path: Path) -> None:
    (tmp_path / "left-cluster").touch()  # so the node ends before it needs anything
    snapshot = tmp_path / "auth.snapshot"
    snapshot.write_text("anything")
    snapshot.chmod(0o644)
    tmp_path.chmod(0o755)
    environment = {"FLOCKMQ_REDIS__URL": "redis://127.0.0.1:1", "FLOCKMQ_CLUSTER__KEY_FILE": str(snapshot)}
    done = flockmq("run", "--role", "core", "--data-dir", str(tmp_path), **environment)
    assert "this core left its cluster" in one_error_line(done)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path, snapshot)] == [0o700, 0o600]
