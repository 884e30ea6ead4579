"""The listeners' page says nothing that a node wouldn't take."""

from __future__ import annotations

import re
from pathlib import Path

from flockmq.config.schema import named_listeners
from flockmq.config.whole import load

PAGE = Path(__file__).parents[4] / "docs" / "listeners.md"


def test_the_example_of_the_page_is_a_configuration(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    file = tmp_path / "flockmq.toml"
    file.write_text(found[1])
    config = load(file=file, environment={})
    names = ["tcp:default", "ssl:public", "ws:default", "wss:default", "unix:default"]
    assert [str(listener) for listener in named_listeners(config)] == names
    assert config.zones["inside"].bytes_burst == config.mqtt.bytes_burst == 4 * 1024 * 1024
