"""Pages of names. Where one ends is a text that fits into the next request's address, however long names are.

It is the last name of the page; of a long one its beginning, a NUL, and how many names there are from that beginning up
to it: no name holds a NUL [MQTT-1.5.4-2].

A page ends where it has AUTH_PAGE_MAX_BYTES, too: making one doesn't delay heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final, TypeVar

from flockmq.bounds import AUTH_PAGE_MAX_BYTES, PAGE_END_MAX_CHARACTERS
from flockmq.rlog.sorted_keys import SortedKeys

K = TypeVar("K", str, tuple[str, str])

DIGITS_MAX: Final = 9


def page_of(
    keys: SortedKeys[K],
    after: str | None,
    limit: int,
    text_of: Callable[[K], str],
    key_of: Callable[[str], K],
    row_bytes: Callable[[K], int] = lambda _: 0,
) -> tuple[list[K], str | None]:
    """The page behind the one that ended `after`, and where it ends; None: it is the last one. `key_of` takes the
    beginning of a text, too. `row_bytes`: the size of a row without its name. Raises ValueError: no page ended so."""
    if after is None:
        page = keys.page(None, limit)
    else:
        beginning, is_cut, skipped = after.partition("\0")
        key = key_of(beginning)
        page = keys.page_behind(key, _number(skipped), limit) if is_cut else keys.page(key, limit)
    is_last = len(page) < limit
    sizes = accumulate(len(text_of(key)) + row_bytes(key) for key in page)
    within = next((place for place, size in enumerate(sizes, start=1) if size >= AUTH_PAGE_MAX_BYTES), len(page))
    if is_last and within == len(page):
        return page, None
    page = page[:within]
    text = text_of(page[-1])
    if len(text) <= PAGE_END_MAX_CHARACTERS:
        return page, text
    beginning = text[:PAGE_END_MAX_CHARACTERS]
    return page, f"{beginning}\0{keys.count(key_of(beginning), page[-1])}"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise ValueError("must be what the page before said as next")
    return int(text)
