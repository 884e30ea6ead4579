"""Options: what is accepted, and that each refusal names the option."""

import pytest

from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.options import SourceOptions, parse_options, redis_config
from pyspark_flockmq.servers import RedisConfig
from pyspark_flockmq.url import parse_redis_url

REQUIRED = {"url": "redis://localhost:6379/0", "stream": "lag"}


def test_two_options_are_enough() -> None:
    assert parse_options(REQUIRED) == SourceOptions(RedisConfig(parse_redis_url(REQUIRED["url"])), "lag")


def test_times_are_utc_unless_they_say_otherwise() -> None:
    options = parse_options(REQUIRED | {"from": "1970-01-02", "to": "1970-01-03T01:00:00+01:00"})
    assert (options.from_ms, options.to_ms) == (86_400_000, 2 * 86_400_000)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"uri": "x"}, "option 'uri' is unknown; the options are url, stream,"),
        ({"stream": "logs"}, "option 'stream' is 'logs'; it must be one of connections, refusals, lag, nodes"),
        ({"url": "http://x"}, "must look like redis://host:6379/0"),
        ({"cacertfile": "/ca.crt"}, "need a URL that begins with rediss"),
        ({"url": "rediss://r", "certfile": "/tls.crt"}, "'certfile' and option 'keyfile' go together"),
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


def test_what_redis_asks_for_is_named_by_files() -> None:
    files = {name: f"/etc/flockmq/{name}" for name in ("password_file", "cacertfile", "certfile", "keyfile")}
    redis = parse_options({**REQUIRED, **files, "url": "rediss+sentinel://s1,s2/main", "username": "report"}).redis
    assert redis == RedisConfig(parse_redis_url("rediss+sentinel://s1,s2/main"), "report", **files)


def test_keys_of_one_cluster_are_each_on_a_server_of_its_own() -> None:
    keys = ["a", "b"]
    assert redis_config({"url": "redis+cluster://r1,r2"}).by_server(keys) == [["a"], ["b"]]
    assert redis_config({"url": "redis+sentinel://s1,s2/main"}).by_server(keys) == [["a", "b"]]
