"""The rolling upgrade itself is `make skew`."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import skew


def test_the_release_before_is_unpacked_as_it_was(tmp_path: Path) -> None:
    skew.unpack(skew.RELEASED.read_text().strip(), tmp_path)
    assert (tmp_path / "older" / "broker" / "src" / "flockmq" / "cli.py").exists()


def test_a_clone_without_the_release_before_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no commit 0123456789abcdef.*git fetch --unshallow"):
        skew.unpack("0123456789abcdef", tmp_path)


@pytest.mark.parametrize("line", ["shard cluster: no table has number 64; is this node older than its peers?"])
def test_what_a_node_says_that_did_not_understand_is_found(line: str) -> None:
    assert skew.NOT_UNDERSTOOD.search(line)
