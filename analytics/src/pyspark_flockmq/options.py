"""The options of `spark.read.format("flockmq")`, checked before anything is read.

| option          | value                                                                             | default    |
|-----------------|-----------------------------------------------------------------------------------|------------|
| `url`           | `redis://` or `rediss://` host:port/db, without a password                        | required   |
| `stream`        | `connections`, `refusals`, `lag` or `nodes`                                       | required   |
| `password_file` | a file that holds Redis' password, readable wherever a task runs                  | no password|
| `from`, `to`    | event times, ISO 8601 (UTC unless it says otherwise): from <= at < to             | all        |
| `after`, `until`| IDs of entries: those behind `after`, up to `until`, which belongs to them         | all        |
| `partitions`    | how many tasks read in parallel, 1 to 1024                                        | 8          |

The password is read from its file where a connection is made. It is in no option, so in no plan, log or pickled reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.plan import ALL_IDS, FIRST_ID, ID_PART_MAX, LAST_ID, IdRange, StreamId

PARTITIONS_DEFAULT: Final = 8
PARTITIONS_MAX: Final = 1024
SCHEMES: Final = ("redis", "rediss")
NAMES: Final = ("url", "stream", "password_file", "from", "to", "after", "until", "partitions")


@dataclass(frozen=True)
class SourceOptions:
    url: str
    stream: str
    password_file: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    ids: IdRange = ALL_IDS
    partitions: int = PARTITIONS_DEFAULT


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Raises OptionError, naming the option."""
    for name in options:
        if name.lower() not in NAMES:
            raise OptionError(f"option {name!r} is unknown; the options are {', '.join(NAMES)}")
    stream = options.get("stream", "")
    if stream not in STREAMS:
        raise OptionError(f"option 'stream' is {stream!r}; it must be one of {', '.join(STREAMS)}")
    from_ms, to_ms = (_time(name, options.get(name)) for name in ("from", "to"))
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise OptionError(f"option 'from' ({options['from']}) must be before 'to' ({options['to']})")
    return SourceOptions(
        check_url(options.get("url", "")),
        stream,
        options.get("password_file"),
        from_ms,
        to_ms,
        _ids(options),
        _partitions(options.get("partitions")),
    )


def check_url(url: str) -> str:
    """The URL as it is, or OptionError, which never repeats a password."""
    try:
        parts = urlsplit(url)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_a_number = urlsplit(""), False
    if parts.password or "password" in parse_qs(parts.query):  # redis-py takes it from either
        raise OptionError("the Redis URL carries a password; put it into a file and name the file instead")
    if parts.scheme not in SCHEMES or not parts.hostname or not port_is_a_number:
        raise OptionError("the Redis URL must look like redis://host:6379/0 (or rediss:// for TLS)")
    return url


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"option {name!r} is {text!r}; it must be a time like 2026-11-20T00:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _ids(options: Mapping[str, str]) -> IdRange:
    after, until = _id("after", options.get("after")), _id("until", options.get("until"))
    return IdRange(FIRST_ID if after is None else after.next(), LAST_ID if until is None else until)


def _id(name: str, text: str | None) -> StreamId | None:
    if text is None:
        return None
    ms, _, seq = text.partition("-")
    if not (ms.isdecimal() and seq.isdecimal() and int(ms) <= ID_PART_MAX and int(seq) <= ID_PART_MAX):
        raise OptionError(f"option {name!r} is {text!r}; it must be the ID of an entry, like 1795176000000-0")
    return StreamId(int(ms), int(seq))


def _partitions(text: str | None) -> int:
    if text is None:
        return PARTITIONS_DEFAULT
    if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_MAX:
        raise OptionError(f"option 'partitions' is {text!r}; it must be in 1..{PARTITIONS_MAX}")
    return int(text)
