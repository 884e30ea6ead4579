"""A Secret or a claim that changes is told by its name, whatever becomes of the watch."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from flockmq_operator import name_watch
from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.name_watch import watch_names
from unit.operator.world import World


def event(kind: str, name: str, version: str) -> Manifest:
    return {"type": kind, "object": {"metadata": {"namespace": "ns", "name": name, "resourceVersion": version}}}


class Watched(World):
    """What the watches bring, one after the other; the last one lasts."""

    def __init__(self, *watches: list[Manifest] | Exception) -> None:
        super().__init__()
        self._watches: Iterator[list[Manifest] | Exception] = iter(watches)
        self.began: list[str] = []
        self.anew: list[str | None] = []
        self.over = asyncio.Event()

    async def newest_version(self, kind: str, namespace: str | None) -> str:
        return "newest"

    async def watch(self, kind: str, namespace: str | None, version: str) -> AsyncIterator[Manifest]:
        self.began.append(version)
        brought = next(self._watches, None)
        if brought is None:
            self.over.set()
            await asyncio.Event().wait()
        if isinstance(brought, Exception):
            raise brought
        for item in brought or ():
            yield item


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_watch, "RETRY_MIN_S", 0.0)


async def told_by(world: Watched) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []

    def changed(namespace: str, what: Ref) -> None:
        assert what.kind == "Secret"
        told.append((namespace, what.name))

    watching = asyncio.create_task(watch_names(world, "Secret", "ns", changed, world.anew.append))
    async with asyncio.timeout(10):
        await world.over.wait()
    watching.cancel()
    return told


async def test_each_kind_of_change_is_told_and_the_next_watch_begins_where_the_last_ended() -> None:
    world = Watched([event("ADDED", "a", "1"), event("MODIFIED", "b", "2"), event("DELETED", "c", "3")])
    assert await told_by(world) == [("ns", "a"), ("ns", "b"), ("ns", "c")]
    assert world.began == ["newest", "3"]
    assert world.anew == ["ns"]


async def test_a_bookmark_is_no_change() -> None:
    world = Watched([event("BOOKMARK", "", "9")])
    assert await told_by(world) == []
    assert world.began == ["newest", "9"]


async def test_a_version_that_is_too_old_begins_it_anew() -> None:
    expired: Manifest = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    world = Watched([event("ADDED", "a", "1")], [expired], [event("ADDED", "b", "7")])
    assert await told_by(world) == [("ns", "a"), ("ns", "b")]
    assert world.began == ["newest", "1", "newest", "7"]
    assert world.anew == ["ns", "ns"], "what changed in between isn't known"


@pytest.mark.parametrize("failure", [Unreachable("HTTP 503"), Refused(403, "may not watch")])
async def test_one_that_fails_is_tried_again_and_told(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    world = Watched(failure, [event("ADDED", "a", "1")])
    assert await told_by(world) == [("ns", "a")]
    assert f"Secrets of namespace ns can't be watched; trying again in 0 s: {failure}" in caplog.text
