"""What one wildcard filter costs in the index, and one match: python index.py FILTERS, printing a line of JSON.

The topics are all different, so nothing is answered from a cache; each is matched by one filter of the many.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from flockmq.routing.matcher import FilterIndex

MATCHES = 200_000
SEED = 1


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(count: int) -> dict[str, float]:
    index, before = FilterIndex(), resident_bytes()
    value = object()
    for number in range(count):
        index.add(b"fleet/%07d/+/state" % number, value)
    filter_bytes = (resident_bytes() - before) / count
    chosen = random.Random(SEED)
    topics = [b"fleet/%07d/engine/state" % chosen.randrange(count) for _ in range(MATCHES)]
    start = time.perf_counter()
    for topic in topics:
        index.match(topic)
    elapsed = time.perf_counter() - start
    assert index.match(topics[0]) == [value]
    return {"filter_bytes": filter_bytes, "match_us": elapsed / MATCHES * 1e6}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
