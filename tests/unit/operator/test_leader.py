"""One of several operators acts."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from flockmq_operator import leader
from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.leader import LEASE_S, Candidate, LeaseLost, Sighting, held, is_free
from flockmq_operator.manifest import Manifest

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def lease(holder: str | None, version: str = "1") -> Manifest:
    spec = {"leaseDurationSeconds": LEASE_S, "leaseTransitions": 3, **({"holderIdentity": holder} if holder else {})}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


@pytest.mark.parametrize(
    ("holder", "sighting", "free"),
    [
        (None, None, True),
        ("me", None, True),
        ("other", None, False),
        ("other", Sighting("1", 100.0), False),
        ("other", Sighting("1", 100.0 - LEASE_S), False),
        ("other", Sighting("1", 99.9 - LEASE_S), True),
        ("other", Sighting("0", 0.0), False),
    ],
)
def test_a_lease_is_free_when_it_is_nobodys_ours_or_stood_still(
    holder: str | None, sighting: Sighting | None, free: bool
) -> None:
    assert is_free(lease(holder), "me", sighting, now_s=100.0) is free


def test_taking_a_lease_counts_and_renewing_does_not() -> None:
    taken = held(lease("other"), "me", NOW)
    assert (taken["spec"]["holderIdentity"], taken["spec"]["leaseTransitions"]) == ("me", 4)
    assert held(taken, "me", NOW)["spec"] == taken["spec"]
    assert held({"metadata": {}}, "me", NOW)["spec"]["leaseTransitions"] == 0
    assert taken["metadata"]["resourceVersion"] == "1"


class LeaseServer(Kube):
    """The API server's Leases: one, with optimistic concurrency. Every pod exists that isn't in `gone`."""

    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.version = 0
        self.down = False
        self.gone = set[str]()

    async def request(self, method: str, path: str, *, body: Manifest | None = None, **_: object) -> Manifest:
        if self.down:
            raise Unreachable(path)
        if "/pods/" in path:
            if path.rpartition("/")[2] in self.gone:
                raise Refused(404, "not found")
            return {}
        if method == "GET":
            if self.lease is None:
                raise Refused(404, "not found")
            return self.lease
        assert body is not None
        if (method == "POST") == (self.lease is not None) or (
            self.lease and body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            raise Refused(409, "conflict")
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    @property
    def holder(self) -> str | None:
        return (self.lease or {"spec": {}})["spec"].get("holderIdentity")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "RETRY_S", 0.005)


def start(server: LeaseServer, name: str, lead: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
    return asyncio.create_task(Candidate(server, "ns", name).while_leading(lambda: lead(name)))


async def test_the_second_acts_when_the_first_has_ended() -> None:
    server, acting, end = LeaseServer(), list[str](), {name: asyncio.Event() for name in ("a", "b")}

    async def lead(name: str) -> None:
        acting.append(name)
        await end[name].wait()
        acting.remove(name)

    async with asyncio.timeout(10):
        first = start(server, "a", lead)
        while not acting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = start(server, "b", lead)
        await asyncio.sleep(0.05)
        assert acting == ["a"]
        end["a"].set()
        await first
        while acting != ["b"]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        end["b"].set()
        await second
    assert server.holder is None, "it was given back"


async def test_nobody_waits_for_a_holder_whose_pod_is_gone_and_that_stops_should_it_act_all_the_same() -> None:
    server, acting = LeaseServer(), list[str]()

    async def lead(name: str) -> None:
        acting.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            acting.remove(name)

    async with asyncio.timeout(10):
        first = start(server, "a", lead)
        while not acting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        server.gone.add("a")
        second = start(server, "b", lead)
        with pytest.raises(LeaseLost):
            await first
        assert acting == ["b"]
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_who_cannot_renew_stops_acting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "RENEW_S", 0.05)
    server, stopped = LeaseServer(), asyncio.Event()

    async def lead() -> None:
        server.down = True
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with asyncio.timeout(10):
        with pytest.raises(LeaseLost):
            await Candidate(server, "ns", "a").while_leading(lead)
    assert stopped.is_set()


async def test_one_request_that_hangs_ends_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "REQUEST_S", 0.05)
    monkeypatch.setattr(leader, "RENEW_S", 1.0)
    server, hung, renewed = LeaseServer(), asyncio.Event(), asyncio.Event()
    request = server.request

    async def hangs_once(method: str, path: str, **given: Any) -> Manifest:
        if server.holder and not hung.is_set():
            hung.set()
            await asyncio.Event().wait()
        answer = await request(method, path, **given)
        if hung.is_set() and method == "PUT":
            renewed.set()
        return answer

    async def lead() -> None:
        await renewed.wait()

    monkeypatch.setattr(server, "request", hangs_once)
    async with asyncio.timeout(10):
        await Candidate(server, "ns", "a").while_leading(lead)
    assert hung.is_set()


async def test_what_ends_the_leader_is_raised_and_the_lease_given_back() -> None:
    server = LeaseServer()

    async def lead() -> None:
        raise RuntimeError("watch failed")

    with pytest.raises(RuntimeError, match="watch failed"):
        await Candidate(server, "ns", "a").while_leading(lead)
    assert server.holder is None


def test_a_leader_stops_before_another_may_begin() -> None:
    assert leader.RENEW_S < LEASE_S
    assert leader.REQUEST_S + 2 * leader.RETRY_S < leader.RENEW_S, "one that hangs leaves time for another"
