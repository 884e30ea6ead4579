"""Where Redis is, and what is said when that can't be read."""

from pathlib import Path

import pytest

from flockmq.rlog.errors import LogError, LogGap, LogRefused, RedisUnreachable, from_code
from flockmq.rlog.redis import RedisConfig


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://:hunter2@10.0.0.1:7000/0", "10.0.0.1:7000"),
        ("rediss://user:hunter2@redis", "redis:6379"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
    ],
)
def test_the_address_is_without_user_and_password(url: str, address: str) -> None:
    assert RedisConfig(url).address == address


def test_a_rotated_password_is_taken_up(tmp_path: Path) -> None:
    file = tmp_path / "password"
    config = RedisConfig("redis://redis", password_file=file)
    for password in ("old", "new"):
        file.write_text(f"{password}\n")
        assert config.connection().password == password


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RedisUnreachable, match=f"^Redis at redis:6379: .*{tmp_path / 'password'}"):
        RedisConfig("redis://redis", password_file=tmp_path / "password").connection()


def test_a_url_of_another_scheme_is_refused() -> None:
    with pytest.raises(RedisUnreachable, match=r"^Redis at host:6379: .*scheme"):
        RedisConfig("http://host").connection()


def test_errors_cross_a_link_as_what_they_are() -> None:
    gap = from_code(LogGap.code, "17")
    assert isinstance(gap, LogGap)
    assert gap.expected == 17
    assert isinstance(from_code(LogRefused.code, "x"), LogRefused)
    assert type(from_code("of a newer version", "x")) is LogError
