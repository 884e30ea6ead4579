"""Each kind of value: what is taken, what is refused and how, and what is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from flockmq.config.documents import read
from flockmq.config.schema import HostName, Some, UrlPath
from flockmq.config.values import Address, ByteRate, Bytes, HttpUrl, Network, Rate, RedisUrl, Seconds, Secret
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
    ],
)
def test_what_the_system_could_make_nothing_of_is_refused_at_once(said: str, kind: object, expected: str) -> None:
    assert expected in refusal(said, kind)


class Password(msgspec.Struct, tag_field="mechanism", tag="password", kw_only=True):
    algorithm: Literal["bcrypt", "argon2id"] = "argon2id"
    timeout: Seconds = 5.0


class Http(msgspec.Struct, tag_field="mechanism", tag="http", kw_only=True):
    url: HttpUrl
    password: Secret | None = None
    password_file: Path | None = None
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        if "Host" in self.headers:
            raise ValueError("headers can't have Host")


Chain = tuple[Password | Http, ...]


def test_a_document_is_a_list_of_tables_and_json_where_there_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pa55\n")
    document = [
        {"mechanism": "password", "timeout": "1m"},
        {"mechanism": "http", "url": "http://h/x", "password_file": str(tmp_path / "secret")},
    ]
    first, second = (
        Password(timeout=60),
        Http(url="http://h/x", password=Secret("pa55"), password_file=tmp_path / "secret"),
    )
    assert read(document, Chain, "here") == (first, second)
    assert read(msgspec.json.encode(document).decode(), Chain, "here", is_text=True) == (first, second)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([{"mechanism": "passwort"}], "here[0].mechanism: 'passwort' must be password or http"),
        ([{}], "here[0].mechanism: is missing; it must be password or http"),
        ([{"mechanism": "http"}], "here[0].url: is missing; it must be an HTTP URL"),
        ([{"mechanism": "http", "ulr": 1}], "here[0].ulr: unknown key; did you mean url?"),
        ([{"mechanism": "password", "timeout": "1x"}], "here[0].timeout: '1x' must be a number from 0"),
        ([{"mechanism": "password", "algorithm": "md5"}], "here[0].algorithm: 'md5' must be bcrypt or argon2id"),
        (
            [{"mechanism": "http", "url": "http://h", "headers": {"Host": "x"}}],
            "here[0]: headers can't have Host",
        ),
        ({"mechanism": "http"}, "here: must be a list of tables of keys and values; write [[here]] above each"),
        (["http"], "here[0]: must be a table of keys and values"),
    ],
)
def test_a_mistake_deep_in_a_document_is_named_with_its_place(said: object, expected: str) -> None:
    assert refusal(said, Chain).startswith(expected)


def test_text_that_is_no_json_is_refused_without_being_shown() -> None:
    assert refusal("[{hunter2", Chain, is_text=True) == "here: must be a list of tables of keys and values, as JSON"


@pytest.mark.parametrize("kind", [RedisUrl, HttpUrl])
def test_a_refused_url_is_not_shown_for_it_may_hold_a_password(kind: object) -> None:
    assert "hunter2" not in refusal("ftp://me:hunter2@h", kind)
    assert "hunter2" not in refusal("http://me:hunter2@h:99999999", kind)


def test_the_password_of_a_url_is_moved_to_where_it_is_hidden() -> None:
    read_back = read({"url": "http://me:hunter2@h/x"}, Http, "here")
    assert isinstance(read_back, Http)
    assert (read_back.url, read_back.password) == ("http://me@h/x", Secret("hunter2"))
    assert "hunter2" not in repr(read_back)
