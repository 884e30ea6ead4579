"""How the command ends: what it prints, and its exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ports import free_port
from unit.operator.kubectl.harness import write_kubeconfig


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    """(exit code, what it says on its standard error)."""
    command = [sys.executable, "-c", "from flockmq_operator.kubectl.main import main; main()", *arguments]
    settings = {**os.environ, **environment}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("text", [None, "", "just words", "{", "apiVersion: v1\nclusters: 7\n"])
def test_an_unusable_kubeconfig_is_one_line_and_exit_code_2(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    code, said = run("status", KUBECONFIG=str(file))
    assert code == 2
    assert said.startswith(f"kubectl flockmq: kubeconfig {file}: it can't be used: ")
    assert said.count("\n") == 1


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path, free_port())
    code, said = run("status", "--context", "prod", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert code == 2
    assert f"kubeconfig {tmp_path / 'kubeconfig'}, context prod: " in said


def test_an_api_server_that_is_down_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path, free_port())
    code, said = run("--kubeconfig", str(tmp_path / "kubeconfig"), "status", "demo", "-n", "fleet")
    assert code == 3
    assert said.startswith("kubectl flockmq: the API server can't be reached, or doesn't answer: GET /apis/flockmq.io/")
    assert said.count("\n") == 1


def test_a_wrong_argument_is_exit_code_2() -> None:
    code, said = run("stats")
    assert code == 2
    assert "invalid choice: 'stats'" in said
