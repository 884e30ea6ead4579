"""`flockmq-analytics`: the command line, and how each failure ends it.

What was done goes to stdout; a failure is one line on stderr and an exit code: 2 for an argument or a file that it
names, 3 for Redis, 130 for Ctrl-C, 1 for the rest. `--verbose` adds the traceback and what Spark logs.
"""

import argparse
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from pyspark.errors import PySparkException

from flockmq_analytics import ingest, job, output, pods
from flockmq_analytics.days import days_between
from flockmq_analytics.headline import headline
from flockmq_analytics.java import SetupError
from flockmq_analytics.s3_storage import SCHEME
from flockmq_analytics.session import CORES_DEFAULT, MEMORY_DEFAULT, spark_session
from flockmq_analytics.storage import OutputError
from pyspark_flockmq.errors import OptionError, RedisUnavailable
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.options import REDIS_NAMES
from pyspark_flockmq.reading import last_ids

PROGRAM: Final = "flockmq-analytics"
EXIT_OTHER, EXIT_ARGUMENTS, EXIT_REDIS, EXIT_INTERRUPTED = 1, 2, 3, 130
DAYS_MAX: Final = 366
KEEP_DAYS_DEFAULT: Final = 90
WAIT_DEFAULT_S: Final = 600
LAG_OBJECTIVE_DEFAULT_MS: Final = 1_000
ERROR_LINE_MAX_CHARS: Final = 500


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    if given and given[0] in pods.COMMANDS:
        pods.become(given[0], given[1:])
    arguments = make_parser().parse_args(given)
    try:
        COMMANDS[arguments.command](arguments, datetime.now(UTC))
    except Exception as error:
        if arguments.verbose:
            traceback.print_exc()
        code, line = explain(error)
        print(f"{PROGRAM}: {line}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def explain(error: Exception) -> tuple[int, str]:
    """The exit code and the one line for a failure, wherever Spark wrapped it up."""
    text = str(error).strip()
    if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
        # What a task or the planner raised reaches us as the text of a traceback within Spark's message.
        ours = re.search(r"\b(OptionError|RedisUnavailable): (.+)", text)
        if ours is None:
            said = text.partition("\n: ")[2] or text  # py4j's own line says which call it was
            return EXIT_OTHER, f"Spark failed: {_first_line(said)} (--verbose tells more)"
        return EXIT_ARGUMENTS if ours[1] == "OptionError" else EXIT_REDIS, ours[2]
    if isinstance(error, RedisUnavailable):
        return EXIT_REDIS, text
    if isinstance(error, OptionError):
        return EXIT_ARGUMENTS, text
    if isinstance(error, OutputError | SetupError | OSError):
        return EXIT_OTHER, _first_line(text)
    return EXIT_OTHER, f"{type(error).__name__}: {_first_line(text)} (--verbose tells more)"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:ERROR_LINE_MAX_CHARS]


def _ingest(arguments: argparse.Namespace, now: datetime) -> None:
    given = {name: value for name in REDIS_NAMES if (value := getattr(arguments, name))}
    source = ingest.Source({"url": arguments.redis_url, **given}, arguments.min_replicas, releases=arguments.release)
    with source.connect() as redis:  # before Java starts
        last_ids(redis, [stream.key for stream in STREAMS.values()])
    with spark_session(arguments.memory, arguments.cores, arguments.verbose) as spark:
        target = output.storage(spark, arguments.output)
        with target.locked(arguments.wait) as staging:
            ingested = ingest.run(spark, source, target, staging, now)
    for warning in ingested.warnings:
        print(f"{PROGRAM}: {warning}", file=sys.stderr)
    print(ingested, flush=True)


def _report(arguments: argparse.Namespace, now: datetime) -> None:
    days = _days(arguments, now)
    with spark_session(arguments.memory, arguments.cores, arguments.verbose) as spark:
        target = output.storage(spark, arguments.output)
        task = job.Job(target, days, arguments.time_zone, arguments.keep_days, arguments.lag_objective_ms)
        with target.locked(arguments.wait) as staging:
            reported = job.run(spark, task, staging, now)
    if arguments.headline and (line := headline([one.summary for one in reported])):
        arguments.headline.write_bytes(line)
    print(RENDER[arguments.format](reported), end="", flush=True)


def _as_text(reported: Sequence[job.Reported]) -> str:
    return "\n".join(one.text for one in reported) or "No day has events that its report doesn't know.\n"


def _as_json(reported: Sequence[job.Reported]) -> str:
    """One line a day."""
    return "".join(f"{msgspec.json.encode(one.summary).decode()}\n" for one in reported)


RENDER: Final = {"text": _as_text, "json": _as_json}

COMMANDS: Final = {"ingest": _ingest, "report": _report}


def _days(arguments: argparse.Namespace, now: datetime) -> list[date] | None:
    """None: those that have new events."""
    if arguments.day:
        if arguments.first or arguments.last:
            raise OptionError("--day can't go with --from or --to")
        return [arguments.day]
    if not arguments.first and not arguments.last:
        return None
    if not arguments.first:
        raise OptionError("--to needs --from")
    first, last = arguments.first, arguments.last or now.astimezone(arguments.time_zone).date()
    if first > last:
        raise OptionError(f"--from ({first}) is after --to ({last})")
    days = days_between(first, last)
    if len(days) > DAYS_MAX:
        raise OptionError(f"--from {first} --to {last} is more than {DAYS_MAX} days; run it in parts")
    return days


REDIS_FILES: Final = {
    "--password-file": "Redis' password",
    "--sentinel-password-file": "the sentinels' password",
    "--cacertfile": "the authority of the servers' certificates (default: the system's)",
    "--certfile": "the certificate that is shown to them",
    "--keyfile": "its key",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_ARGUMENTS, f"{PROGRAM}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="FlockMQ's event streams to Parquet, and a report on them.")
    commands = parser.add_subparsers(dest="command", required=True)
    draining = commands.add_parser("ingest", help="drain the event streams into Parquet; run it every few minutes")
    draining.add_argument(
        "--redis-url", required=True, metavar="URL", help="the nodes' redis.url, such as redis://host:6379/0"
    )
    draining.add_argument("--username", metavar="NAME", help="of Redis' ACL (default: the URL's)")
    for option, holds in REDIS_FILES.items():
        draining.add_argument(option, metavar="FILE", help=f"a file that holds {holds}")
    draining.add_argument(
        "--min-replicas",
        type=_natural,
        default=0,
        metavar="N",
        help="how many replicas must have what is drained, beside all that are connected (default: 0)",
    )
    draining.add_argument(
        "--release", action="store_true", help="let cores trim what was ingested: for the cluster's one output only"
    )
    _add_common(draining)
    reporting = commands.add_parser("report", help="report on what was ingested, and tidy up the files")
    reporting.add_argument(
        "--day",
        type=_day,
        metavar="YYYY-MM-DD",
        help="one day; default: those with events that their report doesn't know",
    )
    reporting.add_argument("--from", dest="first", type=_day, metavar="YYYY-MM-DD", help="the first of several days")
    reporting.add_argument(
        "--to", dest="last", type=_day, metavar="YYYY-MM-DD", help="the last of them; default: today"
    )
    reporting.add_argument(
        "--format", choices=("text", "json"), default="text", help="of the report on stdout (default: text)"
    )
    reporting.add_argument(
        "--headline",
        type=Path,
        metavar="FILE",
        help="for a line of JSON with the main figures of the last day that is over; /dev/termination-log in a pod",
    )
    reporting.add_argument(
        "--time-zone", type=_zone, default="UTC", metavar="ZONE", help="of days, such as Europe/Berlin (default: UTC)"
    )
    reporting.add_argument(
        "--lag-objective-ms",
        type=_positive,
        default=LAG_OBJECTIVE_DEFAULT_MS,
        metavar="MS",
        help=f"how far nodes may be behind the log (default: {LAG_OBJECTIVE_DEFAULT_MS})",
    )
    reporting.add_argument(
        "--keep-days",
        type=_positive,
        default=KEEP_DAYS_DEFAULT,
        metavar="N",
        help=f"remove events and reports of days more than N days ago (default: {KEEP_DAYS_DEFAULT})",
    )
    _add_common(reporting)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        required=True,
        type=_output,
        metavar="WHERE",
        help="of the Parquet files and the report: a directory, or s3a://BUCKET/PREFIX",
    )
    parser.add_argument(
        "--wait",
        type=_positive,
        default=WAIT_DEFAULT_S,
        metavar="SECONDS",
        help=f"for another run on the same output (default: {WAIT_DEFAULT_S})",
    )
    parser.add_argument(
        "--memory",
        type=_memory,
        default=MEMORY_DEFAULT,
        metavar="SIZE",
        help=f"of Java's heap (default: {MEMORY_DEFAULT}); under spark-submit it is what that says",
    )
    parser.add_argument(
        "--cores",
        type=_positive,
        default=CORES_DEFAULT,
        metavar="N",
        help=f"how many tasks run at once (default: {CORES_DEFAULT}); the like",
    )
    parser.add_argument("--verbose", action="store_true", help="show Spark's warnings, and tracebacks")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a day like 2026-11-20") from None


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a time zone like Europe/Berlin") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number above 0")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number")
    return int(text)


def _output(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if separator and (f"{scheme}://" != SCHEME or not rest.strip("/")):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a directory nor like s3a://bucket/prefix")
    return text


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[mg]", text):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a size like 512m or 2g")
    return text
