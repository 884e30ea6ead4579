"""What is forked is as what a shell starts: arguments, environment, folder, files, signals, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from integration.dev import fork_server
from integration.dev.commands import PATIENCE_S
from integration.dev.fork_server import Forked


def started(tmp_path: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[Forked, int]:
    """And where it tells that it is ready."""
    told, tell = os.pipe()
    with (tmp_path / "errors").open("ab") as errors:
        environment = os.environ | (environment or {})
        process = fork_server.start((*arguments, "--ready-fd", str(tell)), environment, errors.fileno(), tell)
    os.close(tell)
    return process, told


def test_it_ends_as_it_says_and_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("node.toml").write_text("[mqtt]\nno_such = 1")
    process, told = started(tmp_path, "run", "--config", "node.toml")
    assert process.wait(PATIENCE_S) == 2
    assert (tmp_path / "errors").read_text().startswith("flockmq: error: node.toml: ")
    assert process.poll() == 2
    process.stdout.close()
    os.close(told)


def test_several_run_at_once_each_with_what_it_was_given(tmp_path: Path) -> None:
    free = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0")
    running = [
        started(
            tmp_path,
            *("run", *free, "--data-dir", str(tmp_path / name)),
            environment={"FLOCKMQ_NODE__NAME": name, "FLOCKMQ_MQTT__MAX_QOS_ALLOWED": "1"},
        )
        for name in ("one", "two")
    ]
    for process, told in running:
        with os.fdopen(told) as pipe:
            assert '"management"' in pipe.readline()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.send_signal(signal.SIGTERM)
    assert [process.wait(PATIENCE_S) for process, _ in running] == [0, 0]
    said = (tmp_path / "errors").read_text()
    assert "node one\n" in said
    assert "node two\n" in said
    for process, _ in running:
        process.stdout.close()


def test_one_that_is_killed_is_told_apart(tmp_path: Path) -> None:
    process, told = started(tmp_path, "run", "--data-dir", str(tmp_path / "data"))
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    os.close(told)
