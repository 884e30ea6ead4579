from __future__ import annotations

BUGS: dict = {}


def install(bug):
    BUGS[bug]()
