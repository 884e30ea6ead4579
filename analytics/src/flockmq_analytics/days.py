"""Days and their instants. A report's day is a calendar day of the cluster's time zone; files are of UTC days.

Pure.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

ONE_DAY = timedelta(days=1)


def span(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The day's first instant, and the first that is past it: 23 to 25 hours."""
    start, end = (datetime.combine(one, time(), zone).astimezone(UTC) for one in (day, day + ONE_DAY))
    return start, end


def utc_days(start: datetime, end: datetime) -> list[date]:
    """The UTC days that have an instant of start <= at < end."""
    first, last = start.astimezone(UTC).date(), (end - timedelta(microseconds=1)).astimezone(UTC).date()
    return days_between(first, last)


def days_between(first: date, last: date) -> list[date]:
    """Both are among them."""
    return [first + ONE_DAY * n for n in range((last - first).days + 1)]


def due(changed: Mapping[str, int], reported: Mapping[str, int], zone: ZoneInfo, today: date) -> list[date]:
    """The days, up to today, of which there are events that their last report doesn't know. `changed`: by UTC day, the
    number of the change that brought events; `reported`: by day, the number up to which its report knows them."""
    found = {
        day
        for utc_day, number in changed.items()
        for day in _days_at(date.fromisoformat(utc_day), zone)
        if number > reported.get(str(day), 0) and day <= today
    }
    return sorted(found)


def latest(reported: Iterable[str], today: date) -> str:
    """Of the reported days the last one that is over, or else today; "" if there is none."""
    days = sorted(reported)
    over = [day for day in days if day < str(today)]
    return over[-1] if over else (days[-1] if days else "")


def _days_at(utc_day: date, zone: ZoneInfo) -> list[date]:
    start = datetime.combine(utc_day, time(), UTC)
    last = start + ONE_DAY - timedelta(microseconds=1)
    return days_between(start.astimezone(zone).date(), last.astimezone(zone).date())
