"""How the command ends: what it prints, and its exit code."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq_operator.kube import Refused
from flockmq_operator.kubectl import main
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


@pytest.mark.parametrize(
    ("arguments", "sentence", "of"),
    [
        (("stats",), "invalid choice: 'stats'", ""),
        ((), "the following arguments are required: COMMAND", ""),
        (("restart",), "the following arguments are required: NAME", " restart"),
        (("drain", "r-1", "--wait", "--undo"), "not allowed with argument", " drain"),
        (("drain", "r-1", "--timeout", "soon"), "'soon' must be a number with s, m or h", " drain"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(arguments: tuple[str, ...], sentence: str, of: str) -> None:
    code, said = run(*arguments)
    assert code == 2
    assert said.startswith("kubectl flockmq: ")
    assert sentence in said
    assert said.endswith(f"; how it is written: kubectl flockmq{of} --help\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "log in"), (403, "docs/kubernetes.md"), (409, "look again"), (422, "spec"), (413, "")]
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, advice: str
) -> None:
    async def refuse(_: argparse.Namespace) -> None:
        raise Refused(status, "admission webhook said:\n  no\x1b[31m")

    monkeypatch.setattr(main, "run", refuse)
    with pytest.raises(SystemExit) as ended:
        main.main(["status"])
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("kubectl flockmq: the API server refuses it: admission webhook said: no")
    assert advice in said
    assert said.count("\n") == 1
    assert "\x1b" not in said
