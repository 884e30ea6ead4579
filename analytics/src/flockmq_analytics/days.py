"""Which days a run covers. A day is a UTC calendar day; a span of days holds both its ends."""

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

ONE_DAY = timedelta(days=1)


class Days(NamedTuple):
    first: date
    last: date

    @property
    def start(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def end(self) -> datetime:
        """The first instant that is past them."""
        return datetime.combine(self.last + ONE_DAY, time(), UTC)

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and self.first <= day <= self.last

    def each(self) -> list[date]:
        return [self.first + ONE_DAY * n for n in range((self.last - self.first).days + 1)]

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


def yesterday_and_today(now: datetime) -> Days:
    """What a run covers unless told otherwise: the last whole day, and the one under way so far.

    The day under way is written again, whole, by the next night's run; and a run on demand shows what just happened.
    """
    today = now.astimezone(UTC).date()
    return Days(today - ONE_DAY, today)
