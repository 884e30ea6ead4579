"""Replicants spread over the cores, one at a time, and only where it makes a clear difference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from flockmq.membership.frames import Status
from flockmq.membership.handshake import Identity
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.link import Link
from flockmq.membership.mesh import Mesh
from flockmq.membership.replicant_balance import ReplicantBalance, choose_move, load

ME = "core-0@1"


def core(replicants: int, *, in_majority: bool = True, draining: bool = False, weight: int = 0) -> Status:
    return Status(replicants=replicants, in_majority=in_majority, draining=draining, weight=weight)


def writers(count: int, of: str = ME) -> dict[str, Status]:
    return {f"replicant-{number}@1": Status(core=of) for number in range(count)}


@pytest.mark.parametrize(
    ("mine", "others", "target"),
    [
        (2, {"b": core(0)}, "b"),
        (1, {"b": core(0)}, None),
        (3, {"b": core(2), "c": core(1)}, "c"),
        (3, {"b": core(2), "c": core(2)}, None),
        (5, {"b": core(0, in_majority=False), "c": core(4)}, None),
        (5, {"b": core(0, draining=True), "c": core(3)}, "c"),
        (5, {"b": core(1, weight=9), "c": core(1)}, "c"),
        (5, {}, None),
    ],
)
def test_one_replicant_moves_to_the_least_loaded_core_if_that_makes_a_difference(
    mine: int, others: dict[str, Status], target: str | None
) -> None:
    move = choose_move(writers(mine) | {"replicant-9@1": Status(core="c")} | others, others, ME)
    assert move == (None if target is None else ("replicant-0@1", target))


def test_cores_that_drain_come_last_then_replicants_count_then_appends() -> None:
    ordered = [core(0), core(0, weight=5), core(1), core(0, draining=True)]
    shuffled = [ordered[index] for index in (2, 0, 3, 1)]
    assert sorted(shuffled, key=load) == ordered


def test_a_core_that_was_unable_is_chosen_only_if_there_is_no_other() -> None:
    linked = [cast(Link, SimpleNamespace(peer=Identity(f"core-{n}@00000001", "core"))) for n in range(2)]
    statuses = {"core-0@00000001": core(0), "core-1@00000001": core(5)}
    mesh = cast(Mesh, SimpleNamespace(core_links=lambda: linked))
    balance = ReplicantBalance(
        lambda: "replicant-0@00000001", mesh, cast(Heartbeats, SimpleNamespace(of=statuses.__getitem__))
    )
    idle, busy = linked
    assert balance.choose() is idle
    assert balance.choose(idle) is busy
    linked.pop()
    assert balance.choose(idle) is idle
