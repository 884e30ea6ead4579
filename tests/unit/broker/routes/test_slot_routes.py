"""Routes of slots: in the log while a session of the slot wants them, whoever deletes them late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flockmq.clock import SYSTEM
from flockmq.durable.due_wills import DueWills
from flockmq.durable.slot import OwnedSlot
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.mqtt.message import publication
from flockmq.mqtt.reason import Reason
from flockmq.node.durable_host import DurableHost
from flockmq.rlog.entry import PUT, Op
from flockmq.rlog.route_table import RouteTable
from flockmq.rlog.schema import CLAIMS, ROUTES, SHARES, SharedMembers
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.exclusive_claims import ExclusiveClaims
from flockmq.routes.remote_routes import RemoteRoutes, slot_owner
from flockmq.routes.route_turns import NOBODY
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routes.slot_routes import OrphanedSlotRoutes
from flockmq.routing.router import Router
from flockmq.routing.shared_frames import SHARED, wrap
from flockmq.routing.sink import SinkHost
from flockmq.routing.slots import SlotMessage, SlotPeers
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import SlotDispatcher
from flockmq.session.limits import Limits
from flockmq.telemetry.counters import Counters
from unit.broker.durable.redis import Disk, Redis
from unit.broker.durable.session_owner import SessionOwner
from unit.broker.node.harness import RouteLog
from unit.broker.routes.redis import secured

SLOT = 7
"""Of the sessions that `Owner` makes."""
OWNER = slot_owner(SLOT)
GROUP = b"$share/g/a/#"


class Hosted:
    """A session of a slot at an owner whose log answers when it is told to."""

    def __init__(self) -> None:
        self.log = RouteLog()
        self.version = ClusterVersion()
        submit, reason_of = self.log.submit, WriteReasons(SYSTEM).of
        claims = ExclusiveClaims(
            "me@0", submit, secured, reason_of, lambda client_id, filter: True, lambda client_id: True
        )

        def applied(op: Op) -> None:
            table, kind, owner, filter, value = op
            if (table, kind) == (CLAIMS.number, PUT):
                claims.claims.put((filter, owner), value, None)

        self.log.on_apply = applied
        router = Router(SinkHost(Counters()), 1 << 20)
        self.shares = RemoteSharedMembers(router, "me@0")
        self.routes = RemoteRoutes(router, "me@0", lambda _: None)
        table = RouteTable(ROUTES)
        parts: dict[str, Any] = {
            "cluster": SimpleNamespace(
                nodes_table={}, version=self.version, incarnation="me@0", slots=SimpleNamespace(epoch=0)
            ),
            "delivery": SimpleNamespace(slots=SimpleNamespace()),
            "routes": SimpleNamespace(
                turns=SimpleNamespace(submit=submit),
                counts=CountTurns(),
                slot_peers=SlotPeers(SlotDispatcher()),
                filters=SimpleNamespace(exclusive=claims),
                remote=self.routes,
                shares=self.shares,
            ),
            "rlog": SimpleNamespace(
                tables=SimpleNamespace(
                    routes=SimpleNamespace(nodes=self.log.holders, rows_of=table.rows_of), alarms={}
                ),
            ),
            "session_rpc": SimpleNamespace(congested=None, report_memory=None, floor=None, loaded=None, retaken=None),
            "quotas": SimpleNamespace(usage=None),
            "retaining": SimpleNamespace(caught_up=lambda: None),
        }
        self.durable_host = DurableHost(
            Disk(Redis()),
            {"default": Limits()},
            SYSTEM,
            reason_of=reason_of,
            router=router,
            access=cast(Any, None),
            plugin_hooks=cast(Any, None),
            sys_topics=cast(Any, None),
            retained=cast(Any, SimpleNamespace()),
            publish=lambda left, accepted: None,
            flush=lambda: None,
            spawn=asyncio.ensure_future,
            **parts,
        )
        self.shares.go_live()
        self.session = SessionOwner().opened()
        self.slot = OwnedSlot(SLOT, 0, "", self.session.writer, cast(DueWills, SimpleNamespace()))
        self.slot.loaded = True
        self.durable_host.session_service.manager.slots[SLOT] = self.slot
        self.answers: list[int] = []

    async def subscribe(self, filter: bytes) -> Subscription:
        subscription = Subscription(self.session, filter, 1)
        self.durable_host.router.add(subscription)
        self.durable_host.route_slot(SLOT, [filter], self.answers.append, NOBODY)
        while self.log.waiting():
            await self.log.answer()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self.durable_host.router.remove(subscription)
        self.durable_host.unrouted_slot(SLOT, b"c", [subscription.filter])


@pytest.fixture
async def hosted() -> Hosted:
    return Hosted()


async def test_a_filter_is_routed_to_the_slot_once(hosted: Hosted) -> None:
    await hosted.subscribe(b"a/#")
    assert hosted.log.rows == {b"a/#": {OWNER}}
    hosted.durable_host.route_slot(SLOT, [b"a/#"], hosted.answers.append, NOBODY)
    assert hosted.log.waiting() == 0
    assert hosted.answers == [Reason.SUCCESS, Reason.SUCCESS]


async def test_a_route_goes_with_the_last_who_wants_it(hosted: Hosted) -> None:
    first, second = await hosted.subscribe(b"a/#"), Subscription(SessionOwner().opened(), b"a/#", 1)
    hosted.durable_host.router.add(second)
    hosted.unsubscribe(first)
    assert hosted.log.waiting() == 0
    hosted.unsubscribe(second)
    await hosted.log.answer()
    assert hosted.log.holders(b"a/#") == set()


async def test_a_route_that_a_former_owner_deletes_late_is_written_again(hosted: Hosted) -> None:
    await hosted.subscribe(b"a/#")
    hosted.log.rows[b"a/#"].discard(OWNER)
    hosted.durable_host.routes.route_deleted(SLOT, b"a/#")
    await asyncio.sleep(0)
    await hosted.log.answer()
    assert hosted.log.holders(b"a/#") == {OWNER}


async def test_a_route_that_nobody_wants_stays_deleted(hosted: Hosted) -> None:
    subscription = await hosted.subscribe(b"a/#")
    hosted.durable_host.routes.route_deleted(SLOT, b"b/#")
    hosted.durable_host.routes.route_deleted(SLOT + 1, b"a/#")
    hosted.durable_host.routes.route_deleted(SLOT, b"a/#")
    hosted.unsubscribe(subscription)
    await hosted.log.answer()
    await asyncio.sleep(0)
    assert hosted.log.waiting() == 0
    assert hosted.log.holders(b"a/#") == set()


async def test_a_slot_that_went_has_its_routes_written_by_its_next_owner(hosted: Hosted) -> None:
    await hosted.subscribe(b"a/#")
    hosted.durable_host.slot_gone(SLOT)
    hosted.durable_host.routes.route_deleted(SLOT, b"a/#")
    hosted.durable_host.unrouted_slot(SLOT, b"c", [])
    await asyncio.sleep(0)
    assert hosted.log.waiting() == 0


# Members of shared subscriptions.


class Shared(Hosted):
    """What is written goes into the table that everybody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.log.on_apply = self._applied

    def _applied(self, op: Op) -> None:
        _, kind, owner, filter, value = op
        if kind == PUT:
            self.shares.put((filter, owner), SHARES.decode(value), None)
        else:
            self.shares.delete((filter, owner), SharedMembers(0, 0))

    def row(self) -> tuple[int, int]:
        return self.shares.count(GROUP, OWNER)

    async def write(self) -> None:
        """Until there is something to write, and it is written."""
        await asyncio.wait_for(self.log.submitted.wait(), 10)
        while self.log.waiting():
            await self.log.answer()


@pytest.fixture
async def shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    monkeypatch.setattr("flockmq.routes.count_turns.SHARED_COUNTS_S", 0.001)
    return Shared()


async def test_members_are_counted_by_slot(shared: Shared) -> None:
    first = await shared.subscribe(GROUP)
    assert (shared.row(), shared.answers) == ((1, 0), [Reason.SUCCESS])
    second = Subscription(SessionOwner().opened(), GROUP, 1)
    shared.durable_host.router.add(second)
    await shared.write()
    assert shared.row() == (2, 0)
    shared.unsubscribe(first)
    shared.unsubscribe(second)
    await shared.write()
    assert shared.log.holders(GROUP) == set()


@pytest.mark.parametrize("late", [None, SharedMembers(7, 1)])
async def test_what_a_former_owner_writes_late_of_its_members_is_corrected(
    shared: Shared, late: SharedMembers | None
) -> None:
    await shared.subscribe(GROUP)
    await rest()
    if late is None:
        shared.shares.delete((GROUP, OWNER), SharedMembers(1, 0))
    else:
        shared.shares.put((GROUP, OWNER), late, SharedMembers(1, 0))
    await shared.write()
    assert shared.row() == (1, 0)


async def test_a_row_without_members_goes_when_it_is_noticed(shared: Shared) -> None:
    shared.shares.put((GROUP, OWNER), SharedMembers(1, 0), None)
    shared.durable_host.router.on_missing(SLOT, GROUP)
    await shared.write()
    assert shared.row() == (0, 0)


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_row_of_a_slot_that_is_not_here_yet_or_any_more_is_left_to_its_owner(
    shared: Shared, is_held: bool
) -> None:
    """What is dealt out to it may reach this node late, or early."""
    shared.shares.put((GROUP, OWNER), SharedMembers(1, 0), None)
    if is_held:
        shared.slot.loaded = False
    else:
        del shared.durable_host.session_service.manager.slots[SLOT]
    packet = publication(4, 0, False, b"a/b", b"late", b"").packet
    message = SlotMessage(b"", 0, b"", 4 | SHARED, SLOT.to_bytes(2, "big") + wrap(GROUP, 0, 2, packet))
    shared.durable_host.session_service.intake.take_runs([message])
    await asyncio.sleep(0.01)
    assert (shared.log.waiting(), shared.row()) == (0, (1, 0))


async def test_members_that_a_bootstrap_did_not_bring_are_written_again(shared: Shared) -> None:
    await shared.subscribe(GROUP)
    shared.shares.swap(shared.shares.fresh())
    shared.durable_host.routes.swapped()
    await shared.write()
    assert shared.row() == (1, 0)


async def test_who_let_go_of_a_slot_counts_its_members_no_more(shared: Shared) -> None:
    await shared.subscribe(GROUP)
    shared.durable_host.slot_gone(SLOT)
    shared.shares.put((GROUP, OWNER), SharedMembers(3, 0), SharedMembers(1, 0))
    shared.durable_host.router.give_up_shared(SLOT)
    await asyncio.sleep(0.01)
    assert (shared.log.waiting(), shared.row()) == (0, (3, 0))


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_route_that_a_bootstrap_did_not_bring_is_written_again(hosted: Hosted) -> None:
    await hosted.subscribe(b"a/#")
    await hosted.subscribe(b"b/#")
    hosted.log.rows = {b"b/#": {OWNER}}
    hosted.routes.swap(hosted.routes.fresh())
    await rest()
    assert hosted.log.waiting() == 1
    await hosted.log.answer()
    assert hosted.log.rows == {b"a/#": {OWNER}, b"b/#": {OWNER}}


async def test_a_route_that_could_not_be_written_is_tried_again(hosted: Hosted) -> None:
    await hosted.subscribe(b"a/#")
    hosted.log.rows.clear()
    hosted.durable_host.routes.route_deleted(SLOT, b"a/#")
    await rest()
    await hosted.log.answer(applied=False)
    hosted.durable_host.try_again()
    await rest()
    await hosted.log.answer()
    assert hosted.log.holders(b"a/#") == {OWNER}
    hosted.durable_host.try_again()
    await rest()
    assert hosted.log.waiting() == 0


async def test_routes_of_a_session_that_came_are_tried_again(hosted: Hosted) -> None:
    hosted.durable_host.router.add(Subscription(hosted.session, b"a/#", 1))
    hosted.durable_host.filters_loaded(SLOT, b"c", [b"a/#"])
    await hosted.log.answer(applied=False)
    hosted.durable_host.try_again()
    await rest()
    await hosted.log.answer()
    assert hosted.log.holders(b"a/#") == {OWNER}


class Here:
    """Slots 1 and 2 run here, slot 3 doesn't."""

    def __init__(self) -> None:
        self.table = RouteTable(ROUTES)
        self.wanted: dict[tuple[int, bytes], int] = {}
        self.filters: dict[int, int] = {}
        self.slots = {1, 2}
        self.deleted: list[tuple[int, bytes]] = []
        self.orphans = OrphanedSlotRoutes(lambda: self.table, self, lambda slot: slot in self.slots, self._delete)

    def route(self, owner: int | str, *filters: bytes) -> None:
        name = owner if isinstance(owner, str) else slot_owner(owner)
        self.table.apply(PUT, name, filters, [b""] * len(filters))

    def want(self, slot: int, *filters: bytes) -> None:
        for filter in filters:
            self.wanted[slot, filter] = 1
            self.filters[slot] = self.filters.get(slot, 0) + 1

    async def look(self, times: int = 2) -> list[tuple[int, bytes]]:
        for _ in range(times):
            await self.orphans.look()
        deleted, self.deleted = sorted(self.deleted), []
        return deleted

    def _delete(self, slot: int, filters: list[bytes]) -> None:
        self.deleted += [(slot, filter) for filter in filters]


@pytest.fixture
def here() -> Here:
    made = Here()
    made.route("replicant@1", b"a", b"b", b"c")
    return made


async def test_routes_that_nobody_wants_are_deleted(here: Here) -> None:
    here.route(1, b"a", b"b", b"c")
    here.route(2, b"a")
    here.want(1, b"b")
    assert await here.look() == [(1, b"a"), (1, b"c"), (2, b"a")]


async def test_what_is_wanted_stays(here: Here) -> None:
    here.route(1, b"a", b"b")
    here.want(1, b"a", b"b")
    assert await here.look() == []


async def test_routes_of_slots_that_run_elsewhere_are_theirs(here: Here) -> None:
    here.route(3, b"a")
    assert await here.look() == []
    here.slots.add(3)
    assert await here.look() == [(3, b"a")]


async def test_what_is_just_being_written_is_looked_at_again(here: Here) -> None:
    here.route(1, b"a")
    assert await here.look(1) == []
    here.want(1, b"a")
    assert await here.look(3) == []
    here.route(1, b"b")
    assert await here.look(1) == []
    assert await here.look(1) == [(1, b"b")]


async def test_one_line_tells_of_all_slots(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    here.slots = set(range(100))
    for slot in here.slots:
        here.route(slot, b"a")
        here.route(slot, b"b")
    assert len(await here.look()) == 200
    assert [record.getMessage() for record in caplog.records] == [
        "200 routes that nobody wants are deleted, of 100 slots"
    ]
