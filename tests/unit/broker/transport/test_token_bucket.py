"""Leaky buckets, in the long run, for any reads at any times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import THROTTLE_TICK_S
from flockmq.transport.token_bucket import Bucket, Meter, Rates

rates = st.floats(1.0, 1e6)
amounts = st.integers(1, 65_536)


@given(rates, st.floats(0.0, 1e6), st.lists(st.tuples(st.floats(0.0, 10.0), amounts), min_size=1, max_size=50))
def test_no_more_goes_through_than_burst_rate_and_one_read(
    rate: float, burst: float, reads: list[tuple[float, int]]
) -> None:
    """Whoever obeys the waits: after each read, wait until the debt is paid, and perhaps longer."""
    bucket = Bucket(rate, burst, 0.0)
    now_s, through = 0.0, 0
    for pause_s, amount in reads:
        now_s += bucket.wait_s(now_s) + pause_s
        bucket.debit(amount, now_s)
        through += amount
        assert through <= (bucket.burst + rate * now_s + amount) * (1 + 1e-9)


@given(rates, st.lists(amounts, min_size=2, max_size=50))
def test_who_always_has_more_gets_the_whole_rate(rate: float, reads: list[int]) -> None:
    bucket = Bucket(rate, 0.0, 0.0)
    now_s, through = 0.0, 0
    for amount in reads:
        now_s += bucket.wait_s(now_s)
        assert through >= rate * now_s * (1 - 1e-9)
        bucket.debit(amount, now_s)
        through += amount


@given(rates, st.floats(0.0, THROTTLE_TICK_S), st.lists(amounts, min_size=2, max_size=50))
def test_being_looked_at_a_tick_late_loses_nothing(rate: float, late_s: float, reads: list[int]) -> None:
    bucket = Bucket(rate, 1.0, 0.0)
    bucket.debit(bucket.burst, 0.0)
    now_s, through = 0.0, 0
    for amount in reads:
        bucket.debit(amount, now_s)
        through += amount
        if bucket.wait_s(now_s) > 0.0:
            now_s += bucket.wait_s(now_s) + late_s
            assert through >= rate * (now_s - late_s) * (1 - 1e-9) - 1e-6


def test_a_silence_earns_one_burst_and_no_more() -> None:
    bucket = Bucket(10.0, 25.0, 0.0)
    assert bucket.tokens(1000.0) == 25.0
    bucket.debit(30.0, 1000.0)
    assert bucket.wait_s(1000.0) == 0.5
    assert bucket.wait_s(1000.5) == 0.0


def test_a_meter_waits_for_the_slower_of_messages_and_bytes() -> None:
    meter = Meter(Rates(messages_rate=10, messages_burst=10, bytes_rate=100, bytes_burst=100), 0.0)
    meter.debit(20, 50, 0.0)
    assert meter.wait_s(0.0) == 1.0
    meter.debit(0, 350, 0.0)
    assert meter.wait_s(0.0) == 3.0
    assert meter.room(0.0) == 0
    assert meter.room(3.0) >= 1


def test_what_is_off_never_waits() -> None:
    assert Rates().are_off()
    meter = Meter(Rates(bytes_rate=1.0), 0.0)
    meter.debit(1_000_000, 0, 0.0)
    assert meter.wait_s(0.0) == 0.0
