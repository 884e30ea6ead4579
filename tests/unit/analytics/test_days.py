"""Days of a time zone, and which are due."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from flockmq_analytics.days import due, latest, span, utc_days

BERLIN, UTC_ZONE = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")
MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 11, 16), 24)]
)
def test_a_day_is_as_long_as_its_time_zone_has_it(day: date, hours: int) -> None:
    start, end = span(day, BERLIN)
    assert (end - start).total_seconds() == hours * 3600
    assert start.astimezone(BERLIN).hour == 0


def test_a_span_touches_the_utc_days_that_have_an_instant_of_it() -> None:
    assert utc_days(*span(TUESDAY, BERLIN)) == [MONDAY, TUESDAY]
    assert utc_days(*span(TUESDAY, UTC_ZONE)) == [TUESDAY]
    assert utc_days(datetime(2026, 11, 16, 23, tzinfo=UTC), datetime(2026, 11, 17, 1, tzinfo=UTC)) == [MONDAY, TUESDAY]


def test_a_day_is_due_until_its_report_knows_all_its_events() -> None:
    changed = {"2026-11-16": 5, "2026-11-17": 9}
    assert due(changed, {}, UTC_ZONE, TUESDAY) == [MONDAY, TUESDAY]
    assert due(changed, {"2026-11-16": 5, "2026-11-17": 8}, UTC_ZONE, TUESDAY) == [TUESDAY]
    assert due(changed | {"2026-11-16": 10}, {"2026-11-16": 9, "2026-11-17": 9}, UTC_ZONE, TUESDAY) == [MONDAY]


def test_a_utc_day_may_be_of_two_days_and_none_is_reported_before_it_began() -> None:
    assert due({"2026-11-16": 1}, {}, BERLIN, TUESDAY) == [MONDAY, TUESDAY]
    assert due({"2026-11-16": 1}, {}, BERLIN, MONDAY) == [MONDAY]


def test_the_latest_report_is_that_of_the_last_day_that_is_over() -> None:
    assert latest(["2026-11-17", "2026-11-16"], TUESDAY) == "2026-11-16"
    assert latest(["2026-11-17"], TUESDAY) == "2026-11-17"
    assert latest([], TUESDAY) == ""
