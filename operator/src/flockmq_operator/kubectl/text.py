"""Text for a terminal. Pure."""

from collections.abc import Sequence
from datetime import datetime

AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))
"""Seconds, and how so many are called."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in columns as wide as what is in them."""
    lines = [head, *([shown(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in lines]


def shown(text: str) -> str:
    """On one line, and without what a terminal would obey: clients choose their names, which alarms contain."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))


def age(seconds: float) -> str:
    """As kubectl writes it: 45s, 12m, 7h, 3d; a time that is yet to come is 0s."""
    for size, name in AGES:
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{name}"
    return f"{max(int(seconds), 0)}s"


def age_of(since: str, now: datetime) -> str:
    """`since`: as Kubernetes writes a time; empty: it isn't known."""
    return age((now - datetime.fromisoformat(since)).total_seconds()) if since else "-"


def counted(values: Sequence[str]) -> str:
    """Different values, each with how often it is there where there are several: 'a ×2, b ×1'."""
    kinds = list(dict.fromkeys(values))
    if len(kinds) < 2:
        return kinds[0] if kinds else "-"
    return ", ".join(f"{kind} ×{values.count(kind)}" for kind in kinds)
