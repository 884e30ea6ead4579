"""One node from start to stop: what keeps it from starting is said before anything is opened."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from flockmq.config import whole
from flockmq.config.values import Secret
from flockmq.errors import ConfigError
from flockmq.node import run
from flockmq.node.run import run_node


async def test_a_cluster_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    config = whole.load(
        environment={
            "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "",
            "FLOCKMQ_REDIS__URL": "redis://127.0.0.1:1",
            "FLOCKMQ_NODE__DATA_DIR": str(tmp_path),
        }
    )
    cluster = msgspec.structs.replace(config.cluster, key=Secret("short"))
    with pytest.raises(ConfigError, match="the key must have at least"):
        await run_node(msgspec.structs.replace(config, cluster=cluster))


async def test_what_a_node_does_all_its_life_outlives_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "WORK_AGAIN_S", 0.0)
    errors = [ValueError("the first round")]
    again = asyncio.Event()

    async def work() -> None:
        if errors:
            raise errors.pop()
        again.set()
        await asyncio.Future()

    with caplog.at_level(logging.ERROR):
        task = asyncio.ensure_future(run._keep_up(work))
        await asyncio.wait_for(again.wait(), 10)
    task.cancel()
    assert "ValueError: the first round" in caplog.text
