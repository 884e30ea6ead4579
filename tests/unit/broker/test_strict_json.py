"""What is JSON is decoded as ever, but for a key that an object has twice: that is refused by its name."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import strict_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"a": [{"a": 2}, {"a": 3}]}}',
        '{"a": "{\\"b\\": 1, \\"b\\": 2}"}',
        '["a", "a", {"": null, "A": 1.5e3, "a": true}]',
        "1." + "1" * 5000,
        '{"é": "\\ud83d\\ude00"}',
    ],
)
def test_each_key_once_is_as_it_is(text: str) -> None:
    assert strict_json.decode(text) == strict_json.decode(text.encode()) == msgspec.json.decode(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"password": "x", "password": "y"}', "password"),
        (b'{"a": 1, "\\u0061": 1}', "a"),
        (b'[{"b": [{"a": {"c": 1, "d": 1, "c": 1}}]}]', "c"),
        (b'{"%b": 1, "%b": 2}' % (b"x" * 500, b"x" * 500), "x" * 128),
    ],
)
def test_a_key_that_is_there_twice_is_named(text: bytes, key: str) -> None:
    with pytest.raises(strict_json.DuplicateKey, match=f"the key '{key}' is there twice in one object; say it once"):
        strict_json.decode(text)


def test_the_type_is_looked_at_first() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        strict_json.decode(b'{"a": 1, "a": "x"}', dict[str, int])
    assert strict_json.decode(b'{"a": 1}', dict[str, int]) == {"a": 1}


class One(msgspec.Struct):
    a: int


def test_what_the_type_has_no_place_for_is_looked_at_too() -> None:
    assert strict_json.decode(b'{"a": 1, "b": ' + b"1" * 5000 + b"}", One) == One(1)
    with pytest.raises(strict_json.DuplicateKey, match="'b'"):
        strict_json.decode(b'{"a": 1, "b": 1, "b": 1}', One)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"NaN", b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16")])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        strict_json.decode(text)


@pytest.mark.parametrize("depth", [900, 1000, 100_000])
def test_what_is_nested_too_deep_is_one_of_its_errors(depth: int) -> None:
    try:
        strict_json.decode("[" * depth + "]" * depth)
    except (msgspec.DecodeError, RecursionError):
        return
    assert depth == 900
