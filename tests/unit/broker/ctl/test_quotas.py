"""`flockmq ctl quotas` and a node's own management server, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flockmq.config.schema import QuotasSettings
from flockmq.ctl import command
from flockmq.ctl.api import CtlError
from flockmq.ctl.credentials import KEY_VARIABLE
from flockmq.ctl.quotas import KEYS
from flockmq.errors import ConfigError
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_quotas import CountingNode

Run = Callable[..., Any]


@pytest.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    """`flockmq ctl quotas` with these arguments."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    async with managed(CountingNode(), FakeLog()) as port:
        url = f"http://127.0.0.1:{port}"
        yield lambda *said: asyncio.to_thread(command.run, parser.parse_args(["--url", url, "quotas", *said]))


def test_each_key_of_the_settings_has_an_option() -> None:
    assert tuple(KEYS) == QuotasSettings.__struct_fields__


async def test_quotas_of_one_user_are_set_shown_and_removed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    await run("set", "a/b", "--max-sessions", "5", "--max-queued-bytes", "1KB", "--max-retained-bytes", "infinity")
    line = "name=a/b\tmax_sessions=5\tmax_queued_bytes=1024\tmax_retained_bytes=infinity\n"
    assert capsys.readouterr().out == line
    await run("show", "a/b")
    await run("own")
    assert capsys.readouterr().out == 2 * line
    await run("remove", "a/b")
    await run("own", "--limit", "3")
    assert capsys.readouterr().out == ""
    with pytest.raises(CtlError, match="user 'a/b' has no quotas of its own"):
        await run("show", "a/b")


async def test_the_list_shows_the_limits_of_each_and_those_of_who_has_others(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await run("list")
    first, jo, eve = capsys.readouterr().out.splitlines()
    assert first == 'quota_of_each={"max_sessions":10,"max_queued_bytes":"infinity"}'
    assert "limits" not in jo
    assert eve.endswith('over=["sessions"]\tlimits={"max_sessions":1}')


async def test_what_is_said_wrongly_is_told_with_the_mend(run: Run) -> None:
    with pytest.raises(ConfigError, match="say at least one of --max-sessions, "):
        await run("set", "eve")
    with pytest.raises(CtlError, match=r"quotas\.max_sessions: 'many' must be a number of at least 1"):
        await run("set", "eve", "--max-sessions", "many")
