"""A file of rules is taken as it is written, or refused with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.auth.rule_sources import read_rules
from flockmq.errors import ConfigError


@pytest.mark.parametrize("name", ["rules.json", "rules.toml"])
def test_a_file_that_says_a_key_twice_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    said = {
        "rules.json": '{"rules": [{"permit": "deny", "permit": "allow"}]}',
        "rules.toml": '[[rules]]\npermit = "deny"\npermit = "allow"\n',
    }
    (tmp_path / name).write_text(said[name])
    with pytest.raises(
        ConfigError, match=r"rules\.json: the key 'permit' is there twice|rules\.toml: Cannot overwrite"
    ):
        read_rules(tmp_path / name, "here")
