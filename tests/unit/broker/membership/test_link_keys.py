"""The cluster's keys, and their file that is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import ConfigError
from flockmq.membership.link_keys import LinkKeys, parse_keys

OLD, NEW = "the cluster's first key", "the cluster's second key"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("short", "must have at least 16 bytes"),
        (f"{OLD}\nshort", "must have at least 16 bytes"),
        (f"{OLD}\n{NEW}\n{NEW}", "3 keys; write one, or 2 while it is replaced, one a line"),
        (" \n", "0 keys"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"cluster.key_file: .*{sentence}"):
        parse_keys(text)


def test_the_first_is_shown_and_both_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{OLD}\n{NEW}\n")
    keys = LinkKeys(OLD, file)
    assert keys.all == (OLD.encode(),)
    keys.refresh()
    assert (keys.own, keys.all) == (OLD.encode(), (OLD.encode(), NEW.encode()))
    file.write_text(NEW)
    keys.refresh()
    assert keys.all == (NEW.encode(),)


def test_a_file_that_can_not_be_used_leaves_what_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    keys = LinkKeys(OLD, file)
    keys.refresh()
    file.write_text("short")
    keys.refresh()
    keys.refresh()
    assert keys.all == (OLD.encode(),)
    assert [record.getMessage() for record in caplog.records] == [
        "cluster.key_file: the key must have at least 16 bytes; the keys from before stay"
    ]
    assert "short" not in caplog.text
