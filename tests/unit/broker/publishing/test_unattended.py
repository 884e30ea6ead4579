"""Messages that no connection waits for: given to everybody once, and tried again until there is room for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.bounds import OFFERED_BYTES
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.publishing import unattended
from flockmq.rlog.schema import SharedMembers
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routing.shared_frames import wrap
from flockmq.routing.targets import SlotTarget
from unit.broker.publishing.published import OtherNode, Published, will


async def test_a_will_that_finds_a_full_lane_is_given_to_everybody_when_there_is_room(published: Published) -> None:
    published.router.remote.add(b"t", SlotTarget(7))
    published.dispatcher.has_room = False
    published.publish("will")
    await published.rest()
    assert (published.got(), published.dispatcher.taken, published.accepted) == (0, [], [])
    assert len(published.publishing) == 1
    published.dispatcher.has_room = True
    await published.rest()
    assert (published.got(), len(published.dispatcher.taken), published.accepted) == (1, 1, [])
    published.dispatcher.accepts[0]()
    assert published.accepted == ["will"]
    assert (len(published.publishing), published.publishing.waiting_bytes) == (0, 0)


async def test_who_must_be_asked_first_holds_nobody_else_up(published: Published) -> None:
    answer = asyncio.get_running_loop().create_future()

    def publish(name: str, may: Callable[[], Awaitable[bool]] | None) -> None:
        message = publication(5, 1, False, b"t", name.encode(), b"")
        published.publishing.publish(message, lambda: published.accepted.append(name), None, may)

    async def asked() -> bool:
        return await answer

    publish("asked", asked)
    publish("asked too", asked)
    publish("other", None)
    await published.rest()
    assert (published.got(), published.accepted) == (1, ["other"])
    answer.set_result(False)
    await published.rest()
    assert (published.got(), published.accepted) == (0, ["other", "asked", "asked too"])


async def test_the_log_knows_whose_a_will_is_that_is_delayed_once_more(published: Published) -> None:
    authorization = StoredAuthorization(b"c", b"jo", "192.0.2.1", 1)
    message = publication(5, 1, False, b"$delayed/5/t", b"x", b"")
    published.publishing.publish(message, lambda: published.accepted.append("x"), authorization)
    await published.rest()
    assert (published.owners, published.accepted) == ([authorization], ["x"])


async def test_nobody_is_given_a_message_again_because_one_node_has_no_room_for_it(published: Published) -> None:
    full, other = OtherNode(), OtherNode()
    published.router.remote.add(b"t", full)
    published.router.remote.add(b"#", other)
    full.has_room = False
    published.publish("will")
    await published.rest()
    assert (other.taken, published.got()) == ([], 0)
    full.has_room = True
    await published.rest()
    assert published.got() == len(other.taken) == len(full.taken) == 1
    other.waiting[0]()
    assert published.accepted == []
    full.waiting[0]()
    assert published.accepted == ["will"]


async def test_a_shared_group_without_room_gets_it_later_and_alone(published: Published) -> None:
    router = published.router
    full = OtherNode()
    router.shared.find_peer = {"other@0": full}.get
    shares = RemoteSharedMembers(router, "me@0")
    shares.go_live()
    shares.put((b"$share/g/t", "other@0"), SharedMembers(1, 0), None)
    full.has_room = False
    published.publish("will")
    await published.rest()
    assert (published.got(), full.taken) == (1, [])
    full.has_room = True
    await published.rest()
    assert (published.got(), len(full.taken)) == (0, 1)
    full.waiting[0]()
    assert published.accepted == ["will"]


async def test_what_a_purged_node_never_accepted_is_tried_until_another_member_has_room(published: Published) -> None:
    router = published.router
    full = OtherNode()
    router.shared.find_peer = {"other@0": full}.get
    router.shared.on_refused = published.publishing.share
    shares = RemoteSharedMembers(router, "me@0")
    shares.go_live()
    shares.put((b"$share/g/t", "other@0"), SharedMembers(1, 0), None)
    full.has_room = False
    packet = publication(4, 1, False, b"t", b"left", b"").packet
    router.shared.returned(4, wrap(b"$share/g/t", 3, 0, packet))
    await published.rest()
    assert (full.taken, router.counters.dropped_no_room) == ([], 0)
    full.has_room = True
    await published.rest()
    assert len(full.taken) == 1
    assert (len(published.publishing), router.counters.dropped_no_room) == (0, 0)


async def test_with_old_tables_only_QoS_0_is_published(published: Published) -> None:
    published.router.stale = True
    published.publish("0", qos=0)
    published.publish("1")
    await published.rest()
    assert (published.accepted, published.got()) == (["0"], 1)
    published.router.stale = False
    await published.rest()
    assert (published.accepted, published.got()) == (["0", "1"], 1)


async def test_a_retained_will_is_retained_once_and_before_it_is_given_to_anybody(published: Published) -> None:
    published.reasons = [Reason.UNSPECIFIED_ERROR, Reason.QUOTA_EXCEEDED]
    published.router.remote.add(b"t", SlotTarget(7))
    published.dispatcher.has_room = False
    published.publish("will", retain=True)
    await published.rest()
    assert (len(published.logged), published.got()) == (3, 0)
    published.dispatcher.has_room = True
    await published.rest()
    assert (len(published.logged), published.got()) == (3, 1)


async def test_a_delayed_will_is_accepted_when_the_log_has_it_or_never_can(published: Published) -> None:
    published.reasons = [Reason.UNSPECIFIED_ERROR, Reason.SUCCESS]
    published.publish("later", topic=b"$delayed/5/t")
    await published.rest()
    assert (published.logged, published.accepted) == ([b"$delayed/5/t"] * 2, ["later"])
    published.reasons = [Reason.TOPIC_NAME_INVALID]
    published.publish("never", topic=b"$delayed/x/t")
    await published.rest()
    assert published.accepted == ["later", "never"]


async def test_the_expiry_runs_while_it_waits(published: Published) -> None:
    published.router.stale = True
    published.publish("kept", expiry_s=60)
    published.publish("expired", expiry_s=9)
    await published.rest()
    published.now_s += 9.5
    await published.rest()
    assert published.accepted == ["expired"]
    assert published.router.counters.dropped_expired == 1
    published.router.remote.add(b"t", SlotTarget(7))
    published.router.stale = False
    await published.rest()
    assert published.dispatcher.taken[0][8:13] == b"\x02\0\0\0\x33", "51 s are left"


async def test_what_waits_is_bounded_and_what_is_beyond_is_said(
    published: Published, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unattended, "OFFERED_MAX_BYTES", 1000)
    published.router.stale = True
    published.publish("first")
    published.publish("second")
    await published.rest()
    assert published.accepted == ["second"]
    assert "is lost" in caplog.text
    assert published.router.counters.dropped_no_room == 1
    published.router.stale = False
    await published.rest()
    assert published.accepted == ["second", "first"]


async def test_one_users_messages_leave_room_for_those_of_others_to_wait(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended, "OFFERED_OF_USER_MAX_BYTES", 1000)
    published.router.stale = True
    for name in ("many-1", "many-2", "many-3"):
        published.publish(name, user=b"many")
    published.publish("other", user=b"other")
    await published.rest()
    assert sorted(published.accepted) == ["many-2", "many-3"], "these are lost"
    published.router.stale = False
    await published.rest()
    assert sorted(published.accepted[2:]) == ["many-1", "other"]
    assert (published.publishing.waiting_bytes, published.publishing._waiting_bytes_of) == (0, {})


async def test_one_that_can_never_be_published_holds_up_no_other(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended, "OFFERED_TOGETHER_MAX", 1)
    published.dispatcher.has_room = False
    published.router.remote.add(b"stuck", SlotTarget(7))
    published.publish("stuck", topic=b"stuck")
    published.router.stale = True
    for name in ("a", "b"):
        published.publish(name)
    await published.rest()
    published.router.stale = False
    await published.rest()
    assert sorted(published.accepted) == ["a", "b"]
    assert len(published.publishing) == 1


async def test_one_that_is_due_is_published_when_all_have_it_or_not_at_all(published: Published) -> None:
    published.router.remote.add(b"t", SlotTarget(7))
    message = publication(5, 1, False, b"t", b"x", b"")
    published.dispatcher.has_room = False
    assert published.publishing.publish_due(message) is None
    assert published.got() == 0
    published.dispatcher.has_room = True
    accepted = published.publishing.publish_due(message)
    assert accepted is not None
    assert not accepted.is_set()
    published.dispatcher.accepts[0]()
    assert accepted.is_set()
    assert published.got() == 1


async def test_a_node_that_was_purged_is_waited_for_by_nobody(published: Published) -> None:
    """Its routes may go a moment after it: a message that is due meanwhile would hold up all behind it, for good."""
    router = published.router
    gone, other = OtherNode(), OtherNode()
    router.remote.add(b"t", gone)
    router.remote.add(b"#", other)
    gone.is_purged = True
    published.publish("will")
    await published.rest()
    assert published.accepted == []
    other.waiting[0]()
    assert published.accepted == ["will"]


async def test_very_many_at_once_leave_others_each_iteration(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended, "RECEIVERS_PER_READ_MAX", 2)
    names = [str(number) for number in range(10)]
    for name in names:
        published.publish(name)
    assert published.publishing.new_bytes > 0
    had = 0
    while had < len(names):
        await asyncio.sleep(0)
        assert len(published.accepted) <= had + 4, "a route and its receiver count for each"
        had = len(published.accepted)
    assert (published.accepted, published.publishing.new_bytes) == (names, 0)


async def test_a_slice_ends_when_its_time_is_up(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unattended, "OFFER_WORK_MAX_S", 0.0)
    monkeypatch.setattr(unattended, "UNOFFERED_MAX_BYTES", 3 * len(will("0").packet) + 3 * OFFERED_BYTES)
    for name in ("0", "1", "2", "3", "4"):
        published.publish(name)
    await asyncio.sleep(0)
    assert published.accepted == ["0", "1"], "so many wait no longer"
    await published.rest()
    assert published.accepted == ["0", "1"], "an iteration without any time publishes none"


async def test_users_take_turns_and_each_ones_messages_keep_their_order(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended, "RECEIVERS_PER_READ_MAX", 0)  # one an iteration
    for name, user in (("a1", b"a"), ("a2", b"a"), ("a3", b"a"), ("b1", b"b"), ("b2", b"b"), ("c1", None)):
        message = will(name, user)
        published.publishing.publish(message, partial(published.accepted.append, name))
    await published.rest()
    assert published.accepted == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_one_that_waits_for_the_log_holds_nobody_up(published: Published) -> None:
    answer = asyncio.get_running_loop().create_future()

    async def retain(message: Publish) -> int:
        return await answer

    published.publishing._retain = retain
    published.publish("retained", retain=True)
    published.publish("other")
    await published.rest()
    assert published.accepted == ["other"]
    answer.set_result(Reason.SUCCESS)
    await published.rest()
    assert published.accepted == ["other", "retained"]


async def test_retries_leave_others_each_iteration(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unattended, "RECEIVERS_PER_READ_MAX", 0)
    published.router.stale = True
    names = [str(number) for number in range(5)]
    for name in names:
        published.publish(name)
    await published.rest()
    published.router.stale = False
    had = 0
    while had < len(names):
        await asyncio.sleep(0)
        assert len(published.accepted) <= had + 1
        had = len(published.accepted)
    assert published.accepted == names
