"""Changes gathered into runs, and what they are said to put."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flockmq.rlog.change import Change, gather
from flockmq.rlog.entry import DELETE, DROP, PUT, Op, Run

tables, owners, data = st.integers(1, 3), st.sampled_from("ab"), st.binary(max_size=3)
valued = st.tuples(tables, st.sampled_from([PUT, DROP]), owners, data, data)
deletes = st.tuples(tables, st.just(DELETE), owners, data, st.just(b""))
lists = st.lists(st.one_of(valued, deletes))


def unrolled(runs: list[Run]) -> list[Op]:
    return [
        (table, kind, owner, key, value)
        for table, kind, owner, keys, values in runs
        for key, value in zip(keys, values or [b""] * len(keys), strict=True)
    ]


@given(lists)
def test_runs_hold_every_op_in_its_order(ops: list[Op]) -> None:
    assert unrolled(gather(ops).runs) == ops


@given(st.lists(lists))
def test_changes_of_one_turn_are_as_one_change_of_all(writes: list[list[Op]]) -> None:
    turn = Change()
    for ops in writes:
        turn.add(gather(ops))
    whole = gather([op for ops in writes for op in ops])
    assert (turn.runs, turn.bytes, turn.puts.of) == (whole.runs, whole.bytes, whole.puts.of)


@given(lists)
def test_only_puts_need_room(ops: list[Op]) -> None:
    rows, sizes = Counter[int](), Counter[int]()
    for table, kind, _, key, value in ops:
        if kind == PUT:
            rows[table] += 1
            sizes[table] += len(key) + len(value)
    change = gather(ops)
    assert change.puts.of == {table: (rows[table], sizes[table]) for table in rows}
    assert change.bytes == sum(len(op[3]) + len(op[4]) for op in ops)


def test_consecutive_changes_of_one_kind_are_one_run() -> None:
    ops: list[Op] = [(3, PUT, "a", b"%d" % n, b"") for n in range(9)]
    assert len(gather(ops).runs) == 1
    assert len(gather([*ops, (3, DELETE, "a", b"1", b""), *ops]).runs) == 3
