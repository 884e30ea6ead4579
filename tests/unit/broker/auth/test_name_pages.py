"""Pages of names: every name is in one of them, however long names are."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.auth.name_pages import page_of
from flockmq.bounds import MANAGEMENT_REQUEST_LINE_MAX_BYTES, PAGE_END_MAX_CHARACTERS
from flockmq.rlog.sorted_keys import SortedKeys

LONG = "😀" * PAGE_END_MAX_CHARACTERS
NAMES = st.sets(st.builds("".join, st.tuples(st.sampled_from(("", "a", LONG, LONG + "a")), st.text("ab/", max_size=3))))


def listed(names: set[Any]) -> SortedKeys[Any]:
    keys: SortedKeys[Any] = SortedKeys()
    for name in names:
        keys.put(name, 1, None)
    return keys


def pair(text: str) -> tuple[str, str]:
    kind, _, name = text.partition("/")
    return kind, name


@given(names=NAMES, limit=st.integers(1, 4))
def test_pages_have_each_name_once_in_order(names: set[str], limit: int) -> None:
    keys, found, end = listed(names), list[str](), None
    while True:
        page, end = page_of(keys, end, limit, str, str)
        found += page
        if end is None:
            break
        assert len(quote(end, safe="")) < MANAGEMENT_REQUEST_LINE_MAX_BYTES - 1024
    assert found == sorted(names)


@given(names=NAMES, limit=st.integers(1, 4))
def test_so_have_those_of_kinds_and_names(names: set[str], limit: int) -> None:
    pairs = {(kind, name) for name in names for kind in ("clientid", "username")}
    keys, found, end = listed(pairs), list[tuple[str, str]](), None
    while True:
        page, end = page_of(keys, end, limit, "/".join, pair)
        found += page
        if end is None:
            break
    assert found == sorted(pairs)


def test_a_page_ends_where_it_is_large_enough() -> None:
    names = [f"{number:02d}" + "x" * 60_000 for number in range(40)]
    keys, pages, end = listed(set(names)), list[list[str]](), None
    for _ in range(4):
        page, end = page_of(keys, end, 100, str, str, lambda name: 40_000)
        pages.append(page)
    assert end is None
    assert [len(page) for page in pages] == [11, 11, 11, 7]
    assert [name for page in pages for name in page] == names


@pytest.mark.parametrize("number", ["", "x", "-1", "²", "1" * 10])
def test_what_no_page_said_is_an_error(number: str) -> None:
    with pytest.raises(ValueError, match="must be what the page before said as next"):
        page_of(listed({"a"}), f"a\0{number}", 1, str, str)
