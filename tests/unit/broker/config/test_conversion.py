"""Structs, and lists of them, read as whole: a refusal names the place within, and shows no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from flockmq.config.conversion import read
from flockmq.config.values import HttpUrl, Seconds, Secret
from unit.broker.config.test_values import refusal


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


def test_json_that_says_a_key_twice_is_refused_by_its_name() -> None:
    said = '[{"mechanism": "http", "url": "http://a", "url": "http://b"}]'
    assert refusal(said, Chain, is_text=True) == "here: the key 'url' is there twice in one object; say it once"


def test_the_password_of_a_url_is_moved_to_where_it_is_hidden() -> None:
    read_back = read({"url": "http://me:hunter2@h/x"}, Http, "here")
    assert isinstance(read_back, Http)
    assert (read_back.url, read_back.password) == ("http://me@h/x", Secret("hunter2"))
    assert "hunter2" not in repr(read_back)
