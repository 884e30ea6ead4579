"""The pages of the documentation say nothing that a node wouldn't take."""

from __future__ import annotations

import re
from pathlib import Path

from flockmq.config.hot import HOT
from flockmq.config.listener_settings import named_listeners
from flockmq.config.load import load
from flockmq.config.schema import Config, QuotasSettings, RedisSettings

DOCS = Path(__file__).parents[4] / "docs"


def example_of(page: str, directory: Path) -> Config:
    found = re.search(r"```toml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    file = directory / "flockmq.toml"
    file.write_text(found[1])
    return load(file=file, environment={"FLOCKMQ_REDIS__PASSWORD": "x"})


def test_the_example_of_listeners_is_a_configuration(tmp_path: Path) -> None:
    config = example_of("listeners.md", tmp_path)
    names = ["tcp:default", "ssl:public", "ws:default", "wss:default", "unix:default"]
    assert [str(listener) for listener in named_listeners(config.listeners)] == names
    assert config.zones["inside"].bytes_burst == config.mqtt.bytes_burst == 4 * 1024 * 1024


def test_the_example_of_redis_says_every_key(tmp_path: Path) -> None:
    redis = example_of("redis.md", tmp_path).redis
    text = (DOCS / "redis.md").read_text()
    assert redis.min_replicas == 1
    assert [key for key in RedisSettings.__struct_fields__ if key != "password" and f"\n{key} = " not in text] == []


def test_the_example_of_quotas_says_every_key(tmp_path: Path) -> None:
    quotas = example_of("quotas.md", tmp_path).quotas
    assert [key for key in QuotasSettings.__struct_fields__ if getattr(quotas, key) is None] == []
    text = (DOCS / "quotas.md").read_text()
    assert [key for key in QuotasSettings.__struct_fields__ if f"| `{key}` |" not in text] == []


def test_all_settings_that_change_while_nodes_run_are_named() -> None:
    text = (DOCS / "management.md").read_text()
    sections = [section for section in HOT if f"[{section.rpartition('.')[0]}]" in text]
    missing = [key for key in HOT if f"`{key}`" not in text and f"`{key.rpartition('.')[2]}`" not in text]
    assert [key for key in missing if key not in sections] == []
