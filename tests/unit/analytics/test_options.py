"""Options: what is accepted, and that each refusal names the option and never a password."""

from pathlib import Path

import pytest

from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.options import SourceOptions, check_url, parse_options
from pyspark_flockmq.reading import read_password

REQUIRED = {"url": "redis://localhost:6379/0", "stream": "lag"}


def test_two_options_are_enough() -> None:
    assert parse_options(REQUIRED) == SourceOptions("redis://localhost:6379/0", "lag")


def test_times_are_utc_unless_they_say_otherwise() -> None:
    options = parse_options(REQUIRED | {"from": "1970-01-02", "to": "1970-01-03T01:00:00+01:00"})
    assert (options.from_ms, options.to_ms) == (86_400_000, 2 * 86_400_000)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"uri": "x"}, "option 'uri' is unknown; the options are url, stream,"),
        ({"stream": "logs"}, "option 'stream' is 'logs'; it must be one of connections, refusals, lag, nodes"),
        ({"url": "http://x"}, "must look like redis://host:6379/0"),
        ({"url": "redis://host:port/0"}, "must look like redis://host:6379/0"),
        ({"url": "redis://[::1/0"}, "must look like redis://host:6379/0"),
        ({"from": "yesterday"}, "option 'from' is 'yesterday'; it must be a time like"),
        ({"from": "2026-01-02", "to": "2026-01-02"}, r"option 'from' \(2026-01-02\) must be before 'to'"),
        ({"after": "now"}, "option 'after' is 'now'; it must be the ID of an entry"),
        ({"until": f"{2**64}-0"}, "option 'until' is"),
        ({"partitions": "0"}, "option 'partitions' is '0'; it must be in 1..1024"),
        ({"partitions": "many"}, "option 'partitions' is 'many'"),
    ],
)
def test_a_bad_option_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(REQUIRED | changed)


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@host:6379/0", "redis://me:hunter2@host:x/0", "redis://host/0?password=hunter2"]
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_url(url)
    assert "hunter2" not in str(refused.value)


def test_a_user_in_the_url_is_fine() -> None:
    assert check_url("rediss://reader@host:6380/0") == "rediss://reader@host:6380/0"


def test_the_password_is_the_files_text_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" s3cret \r\n")
    assert read_password(str(file)) == " s3cret "


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=f"the password file {file}"):
        read_password(str(file))


def test_a_missing_password_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't be read: No such file or directory"):
        read_password(str(tmp_path / "none"))
