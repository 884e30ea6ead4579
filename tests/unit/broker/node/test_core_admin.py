"""A core that is told to leave drains from before it looks whether it may until it ends, or goes on as before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flockmq.clock import SYSTEM
from flockmq.management.view import ClusterState, Conflict, Leaving
from flockmq.node import core_admin, left_cluster
from flockmq.node.core_admin import CoreAdmin
from flockmq.rlog.disk import Disk


class Evacuated:
    def __init__(self) -> None:
        self.is_wanted = False

    def start(self) -> None:
        self.is_wanted = True

    def stop(self) -> None:
        self.is_wanted = False


class Core(CoreAdmin):
    """`obstacles`: what each look says; nothing more stands in the way behind them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *obstacles: str | Exception) -> None:
        self.evacuated = Evacuated()
        self.obstacles = list(obstacles)
        self.drained: list[bool] = []
        """Whether it drained at each look."""
        cluster = SimpleNamespace(settings=SimpleNamespace(name="core-1", role="core"))
        super().__init__(cast(Any, cluster), cast(Any, self), cast(Any, self.evacuated), SYSTEM)
        self.disk = Disk(folder)
        monkeypatch.setattr(core_admin, "LEAVE_HEARD_S", 0.02)
        monkeypatch.setattr(core_admin, "LEAVE_BEGINS_S", 0.0)
        monkeypatch.setattr(core_admin, "obstacle", self._obstacle)

    async def members(self) -> ClusterState:
        return ClusterState(told_by="core-1", stale=False, leader="core-2", slots_without_owner=0, nodes=[])

    async def details(self) -> dict[str, None]:
        return {}

    def _obstacle(self, going: str, staying: object) -> str:
        self.drained.append(self.evacuated.is_wanted)
        found = self.obstacles.pop(0) if self.obstacles else ""
        if isinstance(found, Exception):
            raise found
        return found


async def test_a_request_that_is_refused_ends_no_draining_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(tmp_path, monkeypatch, "", "", "core-2 isn't ready")
    first = asyncio.ensure_future(core.leave())
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(core.leave())
    told = await asyncio.gather(first, second, return_exceptions=True)
    is_gone = (tmp_path / left_cluster.FILE).exists()
    assert is_gone == any(isinstance(each, Leaving) for each in told) == core.evacuated.is_wanted
    assert core.drained[-1] or not is_gone


async def test_a_core_whose_evacuation_was_ended_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(tmp_path, monkeypatch)
    leaving = asyncio.ensure_future(core.leave())
    await asyncio.sleep(0.01)
    core.evacuated.stop()
    with pytest.raises(Conflict, match="somebody has ended its evacuation"):
        await leaving
    assert not (tmp_path / left_cluster.FILE).exists()


async def test_a_core_that_stays_for_whatever_reason_takes_clients_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(tmp_path, monkeypatch, "", RuntimeError("a defect"))
    with pytest.raises(RuntimeError):
        await core.leave()
    assert not core.evacuated.is_wanted
