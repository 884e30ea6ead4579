"""What the output directory holds: one small document, `manifest.json`, that names every data file, and the last entry
of each stream that is in them. What it doesn't name isn't there.

An ingest replaces it by one rename, behind its files: so events and offsets come together or not at all, whenever a run
is killed. A day is a UTC day, by the events' own times. Fields may be added; unknown ones are ignored.

Pure.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple, TypeVar

import msgspec

Kept = TypeVar("Kept")


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a stream's day, by its name there."""

    name: str
    rows: int


class Malformed(msgspec.Struct, frozen=True):
    """What couldn't be decoded, by the day of its ingest."""

    count: int = 0
    example: str = ""


class Added(NamedTuple):
    """What an ingest has of one stream."""

    until: str
    """The ID of the last entry that it read."""
    files: Mapping[str, Iterable[DataFile]]
    """By day."""
    malformed: Malformed
    day: str
    """The day of the ingest."""


class Manifest(msgspec.Struct, frozen=True):
    version: int = 1
    number: int = 0
    """Of changes so far; files are named by it, so no name is used twice."""
    offsets: dict[str, str] = {}
    files: dict[str, dict[str, list[DataFile]]] = {}
    """By stream and day."""
    malformed: dict[str, dict[str, Malformed]] = {}
    """By stream and day of the ingest."""
    reported: dict[str, int] = {}
    """By day of the reports' time zone, the number up to which its report knows all files."""
    changed: dict[str, int] = {}
    """By UTC day, the number of the change that last brought it events."""

    def with_ingest(self, added: Mapping[str, Added]) -> "Manifest":
        number = self.number + 1
        files = {stream: dict(days) for stream, days in self.files.items()}
        malformed = {stream: dict(days) for stream, days in self.malformed.items()}
        changed = dict(self.changed)
        for stream, new in added.items():
            of_stream = files.setdefault(stream, {})
            for day, more in new.files.items():
                of_stream[day] = [*of_stream.get(day, ()), *more]
                changed[day] = number
            if new.malformed.count:
                before = malformed.setdefault(stream, {}).get(new.day, Malformed())
                malformed[stream][new.day] = Malformed(
                    before.count + new.malformed.count, before.example or new.malformed.example
                )
        offsets = self.offsets | {stream: new.until for stream, new in added.items()}
        return msgspec.structs.replace(
            self, number=number, offsets=offsets, files=files, malformed=malformed, changed=changed
        )

    def with_compacted(self, stream: str, day: str, files: Iterable[DataFile]) -> "Manifest":
        """The same events in other files."""
        of_stream = self.files.get(stream, {}) | {day: list(files)}
        return msgspec.structs.replace(self, number=self.number + 1, files=self.files | {stream: of_stream})

    def with_report(self, days: Iterable[str]) -> "Manifest":
        return msgspec.structs.replace(self, reported=self.reported | dict.fromkeys(days, self.number))

    def without_days_before(self, oldest: date) -> "Manifest":
        def kept(days: Mapping[str, Kept]) -> dict[str, Kept]:
            return {day: value for day, value in days.items() if day >= str(oldest)}

        return msgspec.structs.replace(
            self,
            files={stream: kept(days) for stream, days in self.files.items()},
            malformed={stream: kept(days) for stream, days in self.malformed.items()},
            reported=kept(self.reported),
            changed=kept(self.changed),
        )

    def of_day(self, stream: str, day: date) -> list[DataFile]:
        return self.files.get(stream, {}).get(str(day), [])
