"""What one wildcard filter costs in the index, and one match: python index.py FILTERS SHAPES, printing a line of JSON.

The topics are all different, so nothing is answered from a cache; each is matched by one filter of the many. Then
filters of so many other shapes come, made of the topics' own words: what they make of a match is a ratio, of rounds
that take turns.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from flockmq.routing.filter_index import FilterIndex

MATCHES = 200_000
ROUNDS = 9
SEED = 1
SHAPE_LEVELS = 17
"""2^17 places for wildcards."""
WORDS = (b"fleet", b"engine", b"state")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(count: int, shapes: int) -> dict[str, float]:
    value = object()
    before = resident_bytes()
    index = filled(count, value)
    filter_bytes = (resident_bytes() - before) / count
    chosen = random.Random(SEED)
    topics = [b"fleet/%07d/engine/state" % chosen.randrange(count) for _ in range(MATCHES)]
    match_us = taken_us(index, topics)
    crowded = FilterIndex()
    for strange in strangers(shapes):  # they come first, so that they have what is to be had
        crowded.add(strange, strange)
    crowded = filled(count, value, crowded)
    assert index.match(topics[0]) == crowded.match(topics[0]) == [value]
    assert crowded.shapes == shapes + 1
    some = topics[: MATCHES // ROUNDS]
    ratios = [taken_us(crowded, some) / taken_us(index, some) for _ in range(ROUNDS)]
    return {"filter_bytes": filter_bytes, "match_us": match_us, "crowded_ratio": statistics.median(ratios)}


def filled(count: int, value: object, index: FilterIndex | None = None) -> FilterIndex:
    index = FilterIndex() if index is None else index
    for number in range(count):
        index.add(b"fleet/%07d/+/state" % number, value)
    return index


def strangers(count: int) -> Iterator[bytes]:
    """A filter for each shape; half of them end with `#`."""
    for number in range(1, count + 1):
        levels = [b"+" if number >> at & 1 else WORDS[at % len(WORDS)] for at in range(SHAPE_LEVELS)]
        yield b"/".join([*levels, b"#"] if number % 2 else levels)


def taken_us(index: FilterIndex, topics: Sequence[bytes]) -> float:
    start = time.perf_counter()
    for topic in topics:
        index.match(topic)
    return (time.perf_counter() - start) / len(topics) * 1e6


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
