"""`flockmq-analytics`: the command line, and how each failure ends it.

The report goes to stdout; a failure is one line on stderr and an exit code: 2 for an argument or a file that it names,
3 for Redis, 130 for Ctrl-C, 1 for the rest. `--verbose` adds the traceback and what Spark logs.
"""

import argparse
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NoReturn

from pyspark.errors import PySparkException

from flockmq_analytics import job
from flockmq_analytics.days import Days, yesterday_and_today
from flockmq_analytics.java import SetupError
from flockmq_analytics.output import OutputError, locked
from flockmq_analytics.report import to_json, to_markdown
from flockmq_analytics.session import CORES_DEFAULT, MEMORY_DEFAULT, spark_session
from pyspark_flockmq.errors import OptionError, RedisUnavailable
from pyspark_flockmq.options import check_url
from pyspark_flockmq.reading import connect

PROGRAM: Final = "flockmq-analytics"
EXIT_OTHER, EXIT_ARGUMENTS, EXIT_REDIS, EXIT_INTERRUPTED = 1, 2, 3, 130
DAYS_MAX: Final = 366
KEEP_DAYS_DEFAULT: Final = 90
RENDER: Final = {"text": to_markdown, "json": to_json}
ERROR_LINE_MAX_CHARS: Final = 500


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
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
            return EXIT_OTHER, f"Spark failed: {_first_line(text)} (--verbose tells more)"
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


def _run(arguments: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    task = job.Job(
        redis_url=check_url(arguments.redis_url),
        password_file=arguments.password_file,
        output=arguments.output,
        days=_days(arguments, now),
        keep_days=arguments.keep_days,
    )
    with connect(task.redis_url, task.password_file) as client:
        client.ping()
    with (
        locked(task.output) as staging,
        spark_session(arguments.memory, arguments.cores, arguments.verbose) as spark,
    ):
        report = job.run(spark, task, staging, now)
    print(RENDER[arguments.format](report), end="", flush=True)


def _days(arguments: argparse.Namespace, now: datetime) -> Days:
    if arguments.day:
        if arguments.first or arguments.last:
            raise OptionError("--day can't go with --from or --to")
        return Days(arguments.day, arguments.day)
    if not arguments.first and not arguments.last:
        return yesterday_and_today(now)
    if not arguments.first:
        raise OptionError("--to needs --from")
    days = Days(arguments.first, arguments.last or now.date())
    if days.first > days.last:
        raise OptionError(f"--from ({days.first}) is after --to ({days.last})")
    if len(days.each()) > DAYS_MAX:
        raise OptionError(f"--from {days.first} --to {days.last} is more than {DAYS_MAX} days; run it in parts")
    return days


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_ARGUMENTS, f"{PROGRAM}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="FlockMQ's event streams to Parquet, and a report on them.")
    run = parser.add_subparsers(dest="command", required=True).add_parser(
        "run", help="read the event streams, write the days' partitions and the report"
    )
    run.add_argument("--redis-url", required=True, metavar="URL", help="redis://host:6379/0, or rediss:// for TLS")
    run.add_argument("--password-file", metavar="FILE", help="a file that holds Redis' password")
    run.add_argument("--output", required=True, type=Path, metavar="DIR", help="for the Parquet files and the report")
    run.add_argument("--day", type=_day, metavar="YYYY-MM-DD", help="one UTC day; default: yesterday and today so far")
    run.add_argument("--from", dest="first", type=_day, metavar="YYYY-MM-DD", help="the first of several days")
    run.add_argument("--to", dest="last", type=_day, metavar="YYYY-MM-DD", help="the last of them; default: today")
    run.add_argument("--format", choices=tuple(RENDER), default="text", help="of the report on stdout (default: text)")
    run.add_argument(
        "--keep-days",
        type=_positive,
        default=KEEP_DAYS_DEFAULT,
        metavar="N",
        help=f"remove partitions of days more than N days ago (default: {KEEP_DAYS_DEFAULT})",
    )
    run.add_argument(
        "--memory",
        type=_memory,
        default=MEMORY_DEFAULT,
        metavar="SIZE",
        help=f"of Java's heap (default: {MEMORY_DEFAULT})",
    )
    run.add_argument(
        "--cores",
        type=_positive,
        default=CORES_DEFAULT,
        metavar="N",
        help=f"how many tasks run at once (default: {CORES_DEFAULT})",
    )
    run.add_argument("--verbose", action="store_true", help="show Spark's warnings, and tracebacks")
    return parser


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a day like 2026-11-20") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number above 0")
    return int(text)


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[mg]", text):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a size like 512m or 2g")
    return text
