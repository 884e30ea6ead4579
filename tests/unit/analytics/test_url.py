"""URLs mean to the Data Source what they mean to a node, but for passwords."""

import pytest

from flockmq.redis.url import parse_redis_url as parse_as_a_node
from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.url import parse_redis_url

URLS = [
    "redis://redis",
    "redis://redis:7000/3",
    "rediss://user@[::1]/",
    "unix:///run/r%20s.sock",
    "unix://user@/run/redis.sock",
    "redis+sentinel://s1,s2:1,[fe80::1]:2/my-master",
    "rediss+sentinel://user@s1/main",
    "rediss+cluster://user%40home@r1,r2:7/",
]
NONE_AT_ALL = [
    *("", "redis", "http://redis", "redis://", "redis://a,b", "redis://[::1", "redis://redis:0", "redis://redis:65536"),
    *("redis://redis/main", "redis://redis?db=1", "redis://host:port/0", "unix://", "redis+sentinel://s1,s2"),
    *("redis+sentinel://s1,,s2/main", "redis+sentinel://s1/main/0", "redis+cluster://r1/0"),
    *("redis+sentinels://r1/main", "redis+cluster://" + ",".join(["r"] * 65)),
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_means_what_it_means_to_a_node(url: str) -> None:
    assert tuple(parse_redis_url(url)) == tuple(parse_as_a_node(url))
    assert str(parse_redis_url(url)) == str(parse_as_a_node(url))


@pytest.mark.parametrize("url", NONE_AT_ALL)
def test_what_is_none_to_a_node_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="isn't a Redis URL"):
        parse_as_a_node(url)
    with pytest.raises(OptionError, match="must look like redis://host:6379/0"):
        parse_redis_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@host:6379/0",
        "redis://me:hunter2@host:x/0",
        "redis://host/0?password=hunter2",
        "redis+sentinel://me:hunter2@s1,s2/main",
        "unix://:hunter2@/run/redis.sock",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OptionError, match="carries a password") as refused:
        parse_redis_url(url)
    assert "hunter2" not in str(refused.value)
