"""Where Redis is, and what is said when that can't be read."""

from pathlib import Path

import msgspec
import pytest

from flockmq.redis.errors import RedisRefused, StorageError
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.errors import LogGap, LogRefused, from_code


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://:hunter2@10.0.0.1:7000/0", "10.0.0.1:7000"),
        ("rediss://user:hunter2@redis", "redis:6379"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("redis+sentinel://:hunter2@a,b:7/main", "a:26379,b:7/main"),
    ],
)
def test_the_address_is_without_user_and_password(url: str, address: str) -> None:
    assert RedisConfig(url).address == address


async def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with pytest.raises(RedisRefused, match=f"^redis.password_file: '{file}' can't be read: .*No such file"):
        await RedisLink(RedisConfig("redis://redis", password_file=file)).connect()


@pytest.mark.parametrize("key", ["cacertfile", "certfile", "keyfile"])
async def test_a_file_of_tls_that_is_not_there_is_named(tmp_path: Path, key: str) -> None:
    file = tmp_path / "file.pem"
    config = msgspec.structs.replace(RedisConfig("rediss://redis"), **{key: file})
    with pytest.raises(RedisRefused, match=f"^redis.{key}: '{file}' can't be read: No such file"):
        await RedisLink(config).connect()


async def test_a_file_of_tls_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text("nonsense")
    with pytest.raises(RedisRefused, match=r"^redis.cacertfile, redis.certfile or redis.keyfile can't be used: "):
        await RedisLink(RedisConfig("rediss://redis", cacertfile=file)).connect()


async def test_a_url_of_another_scheme_is_refused() -> None:
    with pytest.raises(RedisRefused, match=r"^redis\.url isn't a Redis URL; for example redis://"):
        await RedisLink(RedisConfig("http://host")).connect()


def test_only_a_cluster_puts_keys_apart() -> None:
    keys = ["flockmq:{a}:log", "flockmq:{b}:log"]
    assert RedisConfig("redis+sentinel://a/main").by_server(keys) == [keys]
    assert RedisConfig("redis+cluster://a").by_server(keys) == [keys[:1], keys[1:]]


def test_errors_cross_a_link_as_what_they_are() -> None:
    gap = from_code(LogGap.code, "17")
    assert isinstance(gap, LogGap)
    assert gap.expected == 17
    assert isinstance(from_code(LogRefused.code, "x"), LogRefused)
    assert type(from_code("of a newer version", "x")) is StorageError
