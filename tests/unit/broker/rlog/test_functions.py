"""Redis has one set of functions, and cores of several releases that call them."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import pytest

from flockmq.durable import session_store
from flockmq.rlog import committer

RELEASED: Final = {
    "flockmq_rlog_1": "b7446aff53216db60f12a9041e1083112ad8d2db4e1190e6a0e1ee3163f59f93",
    "flockmq_home_1": "30986380955841da5648a32d161c5c671ae3d91b8edacd78b2464a8b9060eb1b",
}
"""Of each library that a release had: the SHA-256 of its text."""


@pytest.mark.parametrize("text", [committer.FUNCTIONS, session_store.FUNCTIONS])
def test_a_library_that_was_released_stays_as_it_is(text: str) -> None:
    """A core of another release has loaded it under this name. A change needs a copy with the next number: in the
    library's name, in those of its functions, and where they are called."""
    match = re.match(r"#!lua name=(flockmq_(?:rlog|home)_(\d+))\n", text)
    assert match
    name, number = match.groups()
    assert name not in RELEASED or hashlib.sha256(text.encode()).hexdigest() == RELEASED[name]
    registered = re.findall(r"'(flockmq_\w+)'", text)
    assert registered
    assert all(function.endswith((f"_{number}", "_")) for function in registered)
