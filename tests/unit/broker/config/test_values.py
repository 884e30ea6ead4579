"""Each kind of value: what is taken, what is refused and how, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.config.conversion import read
from flockmq.config.listener_settings import HostName, Some, UrlPath
from flockmq.config.values import Address, ByteRate, Bytes, HttpUrl, Network, Rate, RedisUrl, Seconds
from flockmq.errors import ConfigError


def refusal(value: object, kind: object, *, is_text: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        read(value, kind, "here", is_text=is_text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("said", "kind", "value"),
    [
        (15, Seconds, 15),
        ("15", Seconds, 15),
        ("1.5s", Seconds, 1.5),
        ("1h30m", Seconds, 5400),
        ("250ms", Seconds, 0.25),
        ("2H", Seconds, 7200),
        ("1MB", Bytes, 1024 * 1024),
        ("64kb", Bytes, 65_536),
        ("1.5KB", Bytes, 1536),
        ("100/s", Rate, 100),
        ("1MB/s", ByteRate, 1024 * 1024),
    ],
)
def test_amounts_are_numbers_or_have_units(said: object, kind: object, value: float) -> None:
    assert read(said, kind, "here", is_text=True) == value


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        ("15x", Some, "'15x' must be a number from 0.1 to 3600.0 (in seconds, or for example"),
        ("s", Some, "'s' must be"),
        ("15 s 3", Some, "'15 s 3' must be"),
        ("2h", Some, "'2h' must be"),
        ("-1", Some, "'-1' must be"),
        ("nan", Some, "'nan' must be"),
        ("inf", Rate, "'inf' must be"),
        ("1.0005KB", Bytes, "'1.0005KB' must be a whole number from 1"),
        ("10/m", Rate, "'10/m' must be a number from 0 to 1000000000.0 (a second"),
        (True, Bytes, "True must be"),
    ],
)
def test_other_amounts_are_refused_with_their_bounds(said: object, kind: object, expected: str) -> None:
    assert refusal(said, kind, is_text=isinstance(said, str)).startswith(f"here: {expected}")


def test_networks_are_listed_with_commas_where_there_is_only_text() -> None:
    networks = read("10.0.0.0/8, ::1", tuple[Network, ...], "here", is_text=True)
    assert isinstance(networks, tuple)
    assert list(map(str, networks)) == ["10.0.0.0/8", "::1/128"]
    assert refusal(["10.0.0.1/8"], tuple[Network, ...]).startswith("here[0]: '10.0.0.1/8' isn't a network")


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        ("a..b:1883", Address, "'a..b:1883' isn't HOST:PORT"),
        (f"{'a' * 64}:1883", Address, "isn't HOST:PORT"),
        ("/run/a\0b", Path, "isn't the path of a file"),
        ("~nobody-here/x", Path, "'~nobody-here/x' begins with the home of a user who isn't known"),
        ("http://a b/", HttpUrl, "isn't an HTTP URL"),
        ("http://${username}:80/x", HttpUrl, "isn't an HTTP URL: a client would choose its host"),
        ("http://a@${clientid}.b/", HttpUrl, "isn't an HTTP URL: a client would choose its host"),
        ("redis://h/abc", RedisUrl, "isn't a Redis URL"),
        ("*.*.example.com", HostName, "'*.*.example.com' must be a host's name"),
        ("mqtt", UrlPath, "'mqtt' must be a path that begins with /"),
        ("/mqtt\n", UrlPath, "must be a path that begins with /"),
    ],
)
def test_what_the_system_could_make_nothing_of_is_refused_at_once(said: str, kind: object, expected: str) -> None:
    assert expected in refusal(said, kind)


@pytest.mark.parametrize("kind", [RedisUrl, HttpUrl])
def test_a_refused_url_is_not_shown_for_it_may_hold_a_password(kind: object) -> None:
    assert "hunter2" not in refusal("ftp://me:hunter2@h", kind)
    assert "hunter2" not in refusal("http://me:hunter2@h:99999999", kind)
