"""Patterns of names: `*` is any text, `?` one character, and no pattern makes a match slow."""

from __future__ import annotations

import fnmatch
import itertools
import time

import pytest

from flockmq.auth.name_patterns import check_length, glob
from flockmq.bounds import NAME_PATTERN_MAX_CHARS


@pytest.mark.parametrize("length", range(5))
def test_each_short_pattern_matches_what_a_shell_would_match(length: int) -> None:
    texts = ["".join(text) for size in range(5) for text in itertools.product("ab", repeat=size)]
    for letters in itertools.product("ab*?", repeat=length):
        pattern = "".join(letters)
        fits = glob(pattern)
        assert [text for text in texts if fits(text)] == fnmatch.filter(texts, pattern), pattern


@pytest.mark.parametrize(
    ("pattern", "hit", "miss"),
    [
        ("*é?b*", "xéébx", "xéb"),
        ("a*-?x*b", "a--x-yxb", "a-x-b"),
        ("[a]*", "[a]1", "a1"),
        ("a?b", "a\nb", "a\n\nb"),
        ("*?-??*!", "ab-cd!", "-ab!"),
    ],
)
def test_a_pattern_matches(pattern: str, hit: str, miss: str) -> None:
    assert glob(pattern)(hit)
    assert not glob(pattern)(miss)


@pytest.mark.parametrize("part", ["a" * 30_000 + "b", "a?" * 100 + "b", "*a" * 30_000 + "b"])
def test_a_pattern_that_nearly_matches_everywhere_isnt_slow(part: str) -> None:
    start_s = time.process_time()
    assert not glob(f"*{part}*")("a" * 65_000)
    assert time.process_time() - start_s < 1.0, "seconds, as a regular expression took for the first of them"


def test_a_pattern_is_bounded_and_a_name_isnt() -> None:
    check_length("a" * 65_535)
    check_length("a" * (NAME_PATTERN_MAX_CHARS - 1) + "*")
    with pytest.raises(ValueError, match="a pattern may have"):
        check_length("a" * NAME_PATTERN_MAX_CHARS + "*")
