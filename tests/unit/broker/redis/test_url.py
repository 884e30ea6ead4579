"""URLs of all kinds of Redis, and what none looks like."""

import pytest

from flockmq.redis.url import RedisServer, RedisUrl, parse_redis_url


@pytest.mark.parametrize(
    ("url", "parsed_url"),
    [
        ("redis://redis", RedisUrl("server", (RedisServer("redis", 6379),))),
        ("redis://redis:7000/3", RedisUrl("server", (RedisServer("redis", 7000),), database=3)),
        ("rediss://user:pw@[::1]/", RedisUrl("server", (RedisServer("::1", 6379),), tls=True, username="user")),
        ("unix:///run/r%20s.sock", RedisUrl("server", (RedisServer("/run/r s.sock", 0),))),
        (
            "redis+sentinel://:pw@s1,s2:1,[fe80::1]:2/my-master",
            RedisUrl(
                "sentinel",
                (RedisServer("s1", 26379), RedisServer("s2", 1), RedisServer("fe80::1", 2)),
                primary="my-master",
            ),
        ),
        (
            "rediss+cluster://user%40home@r1,r2:7/",
            RedisUrl("cluster", (RedisServer("r1", 6379), RedisServer("r2", 7)), tls=True, username="user@home"),
        ),
    ],
)
def test_what_a_url_says(url: str, parsed_url: RedisUrl) -> None:
    assert parse_redis_url(url) == parsed_url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "http://redis",
        "redis://",
        "redis://a,b",
        "redis://[::1",
        "redis://redis:0",
        "redis://redis:65536",
        "redis://redis/main",
        "redis://redis?db=1",
        "unix://",
        "redis+sentinel://s1,s2",
        "redis+sentinel://s1,,s2/main",
        "redis+sentinel://s1/main/0",
        "redis+cluster://r1/0",
        "redis+sentinels://r1/main",
        "redis+cluster://" + ",".join(["r"] * 65),
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"^isn't a Redis URL; for example redis://127\.0\.0\.1:6379/0, "):
        parse_redis_url(url)


def test_a_place_is_named_as_its_url_names_it() -> None:
    assert str(parse_redis_url("redis+sentinel://s1,[::1]:2/main")) == "s1:26379,[::1]:2/main"
    assert str(parse_redis_url("unix:///run/redis.sock")) == "/run/redis.sock"
