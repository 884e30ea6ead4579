"""What `flockmq ctl` makes of what a node answers."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from flockmq.ctl import command
from flockmq.ctl.api import CtlError, Row
from flockmq.ctl.credentials import KEY_VARIABLE
from flockmq.errors import ConfigError
from flockmq.management import status
from unit.broker.management.harness import serving
from unit.broker.management.test_status import LOST, AlarmedNode

Run = Callable[..., Any]


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    """`flockmq ctl` at a node, with these arguments."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    async with serving(status.routes, AlarmedNode()) as http, http.get("/api/v5/alarms") as answer:
        url = str(answer.url.origin())
        yield lambda *arguments: asyncio.to_thread(command.run, parser.parse_args(["--url", url, *arguments]))


async def test_alarms_are_listed_and_ended(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await run("alarms", "list")
    assert capsys.readouterr().out == f"name={LOST.name}\tsince=1970-01-01T00:00:01+00:00\ttext={LOST.text}\n"
    monkeypatch.setenv(KEY_VARIABLE, "key")
    await run("alarms", "end", LOST.name)
    await run("alarms", "list")
    assert capsys.readouterr().out == ""
    with pytest.raises(CtlError, match=f"there is no alarm {LOST.name!r}"):
        await run("alarms", "end", LOST.name)


async def test_whom_to_trust_is_said_with_https_only(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"--cacert: says whom to trust with https; give an https --url"):
        await run("--cacert", "/nowhere", "alarms", "list")


@pytest.mark.parametrize("arguments", [("show",), ("list", "--clientid")])
async def test_a_client_id_that_is_too_long_for_a_path_is_said_with_its_mend(
    run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "key")
    with pytest.raises(CtlError, match=r"is too long for a path; list what begins so, with a \* at the end"):
        await run("clients", *arguments, "ä" * 4000)


class Paged:
    """As `Api`, with rows 0, 1, 2, …; counts those that were taken."""

    taken = 0

    def pages(self, path: str) -> Iterator[Row]:
        for number in itertools.count():
            self.taken += 1
            yield {"number": number}


@pytest.mark.parametrize("noun", ["audit", "users", "rules", "bans"])
def test_a_list_may_end_before_its_end(
    noun: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Paged()
    monkeypatch.setattr(command, "Api", lambda *_: api)
    monkeypatch.setenv(KEY_VARIABLE, "key")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args([noun, "list", "--limit", "2"]))
    assert capsys.readouterr().out == "number=0\nnumber=1\n"
    assert api.taken == 2
    for limit in ("0", "-1", "x"):
        with pytest.raises(SystemExit):
            parser.parse_args([noun, "list", "--limit", limit])


def test_a_client_that_chooses_its_id_adds_no_lines_or_fields_and_commands_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"client_id": "a\tusername=jo\n\x1b[2Jé\u2028\u202e \x9b", "filters": ["b\x7f"], "by": None}
    monkeypatch.setattr(command, "Api", lambda *_: SimpleNamespace(pages=lambda *_: iter([row])))
    monkeypatch.setenv(KEY_VARIABLE, "key")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args(["sessions", "list"]))
    line = 'client_id=a\\tusername=jo\\n\\x1b[2Jé\\u2028\\u202e \\x9b\tfilters=["b\\x7f"]\tby=-\n'
    assert capsys.readouterr().out == line
    command.run(parser.parse_args(["--json", "sessions", "list"]))
    assert json.loads(capsys.readouterr().out) == row
