"""Forgets the oldest rows of a dict that is full. No I/O.

Each row that is deleted from a dict's beginning makes the next one longer to find, until the dict is made anew. So many
are forgotten at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_PARTS: Final = 64


def forget_oldest(rows: dict[K, V]) -> None:
    """Forget one row in 64, at least one."""
    for key in list(islice(rows, max(1, len(rows) // _PARTS))):
        del rows[key]
