"""When delayed messages are due, and whose turn it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import DELAYED_OF_TURN_MAX
from flockmq.publishing.schedule import Schedule
from flockmq.rlog.schema import DelayedMessage


def key(due_ms: int, number: int) -> bytes:
    return due_ms.to_bytes(8, "big") + number.to_bytes(16, "big")


def row(user: bytes) -> DelayedMessage:
    return DelayedMessage(b"t", b"", 1, False, b"", 5, user=user)


def scheduled(*messages: tuple[bytes, int, int]) -> Schedule:
    schedule = Schedule()
    for user, due_ms, number in messages:
        schedule.put(key(due_ms, number), row(user), None)
    return schedule


def test_one_user_with_very_many_is_one_turn_ahead_of_the_others() -> None:
    greedy = [(b"greedy", 5, number) for number in range(1000)]
    schedule = scheduled(*greedy, (b"anne", 7, 1), (b"jo", 8, 2))
    users = [due.user for due in schedule.due(10, 256)]
    assert users[: DELAYED_OF_TURN_MAX + 2] == [b"greedy"] * DELAYED_OF_TURN_MAX + [b"anne", b"jo"]
    assert len(users) == 256, "and has the rest"


def test_the_next_turn_is_behind_the_last_one() -> None:
    schedule = scheduled((b"a", 1, 1), (b"b", 2, 2), (b"c", 3, 3))
    tried: dict[bytes, bytes] = {}
    users = []
    for _ in range(3):
        ((user, tried_key),) = schedule.due(10, 1, tried)
        tried[user] = tried_key
        users.append(user)
    assert users == [b"a", b"b", b"c"]
    assert schedule.due(10, 1, tried) == []
    assert [due.user for due in schedule.due(10, 3)] == [b"a", b"b", b"c"]


def test_a_user_who_is_skipped_has_none_and_no_time() -> None:
    schedule = scheduled((b"full", 1, 1), (b"jo", 5, 2))
    assert [due.user for due in schedule.due(10, 9, {}, {b"full"})] == [b"jo"]
    assert schedule.first_ms() == 1
    assert schedule.first_ms((), {b"full"}) == 5
    assert schedule.first_ms({key(1, 1)}) == 5


@given(
    st.lists(
        st.tuples(st.sampled_from([b"", b"a", b"b", b"c"]), st.integers(0, 20), st.integers(0, 10**6)),
        unique_by=lambda one: one[1:],
    ),
    st.integers(0, 20),
    st.integers(1, 40),
    st.data(),
)
def test_all_that_is_due_comes_once_in_each_users_order(
    messages: list[tuple[bytes, int, int]], now_ms: int, limit: int, data: st.DataObject
) -> None:
    schedule = scheduled(*messages)
    for user, due_ms, number in data.draw(st.lists(st.sampled_from(messages), unique=True)) if messages else []:
        schedule.delete(key(due_ms, number), row(user))
        messages = [one for one in messages if one != (user, due_ms, number)]
    tried: dict[bytes, bytes] = {}
    came: dict[bytes, list[bytes]] = {}
    while due := schedule.due(now_ms, limit, tried):
        assert len(due) <= limit
        for user, each in due:
            tried[user] = each
            came.setdefault(user, []).append(each)
    wanted: dict[bytes, list[bytes]] = {}
    for user, due_ms, number in sorted(messages, key=lambda one: one[1:]):
        if due_ms <= now_ms:
            wanted.setdefault(user, []).append(key(due_ms, number))
    assert came == wanted
    assert schedule.first_ms() == min((due_ms for _, due_ms, _ in messages), default=None)
