"""Pages of names. Where one ends is a text that fits into the next request's address, however long names are.

It is the last name of the page; of a long one its beginning, a NUL, and how many names there are from that beginning up
to it: no name holds a NUL [MQTT-1.5.4-2].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from flockmq.bounds import PAGE_END_MAX_CHARACTERS
from flockmq.rlog.sorted_keys import SortedKeys

K = TypeVar("K", str, tuple[str, str])

DIGITS_MAX: Final = 9


def page_of(
    keys: SortedKeys[K], after: str | None, limit: int, text_of: Callable[[K], str], key_of: Callable[[str], K]
) -> tuple[list[K], str | None]:
    """The page behind the one that ended `after`, and where it ends; None: it is the last one. `key_of` takes the
    beginning of a text, too. Raises ValueError: no page ended so."""
    if after is None:
        page = keys.page(None, limit)
    else:
        beginning, is_cut, skipped = after.partition("\0")
        key = key_of(beginning)
        page = keys.page_behind(key, _number(skipped), limit) if is_cut else keys.page(key, limit)
    if len(page) < limit:
        return page, None
    text = text_of(page[-1])
    if len(text) <= PAGE_END_MAX_CHARACTERS:
        return page, text
    beginning = text[:PAGE_END_MAX_CHARACTERS]
    return page, f"{beginning}\0{keys.count(key_of(beginning), page[-1])}"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise ValueError("must be what the page before said as next")
    return int(text)
