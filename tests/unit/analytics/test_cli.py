"""The command line without Spark: what can't be asked for, and how each failure ends."""

from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from flockmq_analytics.cli import explain, main
from flockmq_analytics.local_storage import LocalStorage
from flockmq_analytics.storage import OutputError

UNREACHABLE = "redis://127.0.0.1:1/0"  # port 1 is reserved, and nothing listens there


def ingest(*arguments: str) -> int:
    return main(["ingest", "--redis-url", UNREACHABLE, "--output", "/nonexistent/output", *arguments])


def report(*arguments: str) -> int:
    return main(["report", "--output", "/nonexistent/output", *arguments])


def test_an_unreachable_redis_is_one_line_and_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert ingest() == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("flockmq-analytics: Redis at 127.0.0.1:1 can't be reached: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--day", "2026-11-20", "--from", "2026-11-19"], "--day can't go with --from or --to"),
        (["--to", "2026-11-19"], "--to needs --from"),
        (["--from", "2026-11-20", "--to", "2026-11-19"], "--from (2026-11-20) is after --to (2026-11-19)"),
        (["--from", "2020-01-01", "--to", "2026-11-19"], "is more than 366 days; run it in parts"),
    ],
)
def test_days_that_make_no_sense_are_one_line_and_exit_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report("--output", str(tmp_path), *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--password-file", "/nonexistent/password"], "the password file /nonexistent/password can't be read"),
        (["--redis-url", "redis://:hunter2@127.0.0.1/0"], "the Redis URL carries a password"),
    ],
)
def test_arguments_that_make_no_sense_are_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "hunter2" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--day", "20.11.2026"], "'20.11.2026' isn't a day like 2026-11-20"),
        (["--keep-days", "0"], "'0' isn't a whole number above 0"),
        (["--time-zone", "Mars"], "'Mars' isn't a time zone like Europe/Berlin"),
        (["--time-zone", "/etc/passwd"], "isn't a time zone"),
        (["--lag-objective-ms", "0"], "'0' isn't a whole number above 0"),
        (["--memory", "lots"], "'lots' isn't a size like 512m or 2g"),
        (["--format", "xml"], "invalid choice: 'xml'"),
        (["--output", "s3://bucket/a"], "'s3://bucket/a' is neither a directory nor like s3a://bucket/prefix"),
        (["--output", "s3a://"], "is neither a directory nor"),
    ],
)
def test_arguments_that_cannot_be_read_are_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        report(*arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_what_a_spark_task_raised_is_unwrapped() -> None:
    wrapped = PySparkException(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read\nTraceback (most recent call last):\n  File …\n"
        "pyspark_flockmq.errors.RedisUnavailable: Redis at redis:6379 can't be reached: Timeout\n\tat org.apache…"
    )
    assert explain(wrapped) == (3, "Redis at redis:6379 can't be reached: Timeout")


def test_what_spark_itself_raised_is_its_first_line() -> None:
    assert explain(PySparkException("[X] disk full\n\tat org.apache…")) == (
        1,
        "Spark failed: [X] disk full (--verbose tells more)",
    )
    assert explain(Py4JError("gone\n\tat py4j…")) == (1, "Spark failed: gone (--verbose tells more)")
    forbidden = "An error occurred while calling None.x.\n: io.fabric8…Exception: pods is forbidden\n\tat io.fabric8…"
    assert explain(Py4JError(forbidden))[1] == (
        "Spark failed: io.fabric8…Exception: pods is forbidden (--verbose tells more)"
    )


def test_an_output_in_use_is_one_line_and_exit_1(tmp_path: Path) -> None:
    output = LocalStorage(tmp_path)
    with output.locked(), pytest.raises(OutputError) as refused, output.locked():
        pass
    assert explain(refused.value) == (1, f"another run is writing to {tmp_path}; wait for it to end")
