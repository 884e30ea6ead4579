"""A fault that doesn't happen would let every campaign pass: each is tried on a host, inside a sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

from faults import sandbox


def test_what_is_done_to_a_host_happens_and_ends() -> None:
    inside = Path(__file__).with_name("inside_host.py")
    assert sandbox.enter([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(inside)]) == 0
