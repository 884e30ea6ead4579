"""The options of `spark.read.format("flockmq")`, checked before anything is read.

| option                       | value                                                                | default    |
|------------------------------|----------------------------------------------------------------------|------------|
| `url`                        | of any Redis that nodes can use (`url.py`), without a password       | required   |
| `stream`                     | `connections`, `refusals`, `lag` or `nodes`                          | required   |
| `username`                   | of an ACL                                                            | the URL's  |
| `password_file`              | a file that holds Redis' password                                    | no password|
| `sentinel_password_file`     | the like of the sentinels                                            | no password|
| `cacertfile`                 | PEM: who signed the servers' certificates                            | system's   |
| `certfile`, `keyfile`        | PEM: what is shown to servers that ask for a certificate             | nothing    |
| `from`, `to`                 | event times, ISO 8601 (UTC unless it says otherwise): from <= at < to | all       |
| `after`, `until`             | IDs of entries: those behind `after`, up to `until`, included        | all        |
| `partitions`                 | how many tasks read in parallel, 1 to 1024                           | 8          |
| `pushdown`                   | `true`: filters bound what is read (`filters.py`)                    | `false`    |

Spark refuses a source that takes filters unless `spark.sql.python.filterPushdown.enabled` is `true`, which it isn't by
default; therefore `pushdown`. Events that are more than a day late, or more than 5 minutes ahead of Redis' clock, are
missed by filters on `at` then, as they are by `from` and `to`.

Files must be readable wherever a task runs. They are read where a connection is made: a password is in no option, so in
no plan, log or pickled reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.plan import ALL_IDS, FIRST_ID, LAST_ID, IdRange, StreamId
from pyspark_flockmq.servers import RedisConfig
from pyspark_flockmq.url import parse_redis_url

PARTITIONS_DEFAULT: Final = 8
PARTITIONS_MAX: Final = 1024
REDIS_NAMES: Final = ("username", "password_file", "sentinel_password_file", "cacertfile", "certfile", "keyfile")
NAMES: Final = ("url", "stream", *REDIS_NAMES, "from", "to", "after", "until", "partitions", "pushdown")


@dataclass(frozen=True)
class SourceOptions:
    redis: RedisConfig
    stream: str
    from_ms: int | None = None
    to_ms: int | None = None
    ids: IdRange = ALL_IDS
    partitions: int = PARTITIONS_DEFAULT
    takes_filters: bool = False


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
        redis_config(options),
        stream,
        from_ms,
        to_ms,
        _ids(options),
        _partitions(options.get("partitions")),
        _flag("pushdown", options.get("pushdown", "false")),
    )


def redis_config(options: Mapping[str, str]) -> RedisConfig:
    """Raises OptionError."""
    config = RedisConfig(
        parse_redis_url(options.get("url", "")), **{name: options[name] for name in REDIS_NAMES if name in options}
    )
    if (config.certfile is None) != (config.keyfile is None):
        raise OptionError("option 'certfile' and option 'keyfile' go together")
    if not config.url.tls and (config.cacertfile or config.certfile):
        raise OptionError("options 'cacertfile', 'certfile' and 'keyfile' need a URL that begins with rediss")
    return config


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
    found = StreamId.of(text)
    if found is None:
        raise OptionError(f"option {name!r} is {text!r}; it must be the ID of an entry, like 1795176000000-0")
    return found


def _partitions(text: str | None) -> int:
    if text is None:
        return PARTITIONS_DEFAULT
    if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_MAX:
        raise OptionError(f"option 'partitions' is {text!r}; it must be in 1..{PARTITIONS_MAX}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name!r} is {text!r}; it must be true or false")
    return text.lower() == "true"
