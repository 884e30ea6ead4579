"""docs/plugins.md holds: its example runs as it stands there, its points are all points, its configuration is read."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from flockmq import plugins as api
from flockmq.config.load import load
from flockmq.plugins.dispatch import Hooks, Record
from flockmq.plugins.loading import Context

TEXT = (Path(__file__).parents[4] / "docs/plugins.md").read_text()
MALLORY = api.Client(client_id="mallory", username="", host="h", port=1, listener="tcp:default", protocol=5)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_example_does_what_is_said_of_it() -> None:
    (source,) = blocks("python")
    module = ModuleType("flockmq_greenhouse")
    exec(source, vars(module))
    hooks, sent = Hooks(), []
    plugin: api.Plugin = module.Greenhouse()
    settings = {"closed_to": ["mallory"]}
    record = Record(plugin.name, "1.0")
    plugin.start(Context(record, hooks, "n1", settings, lambda *message: sent.append(message)))
    assert hooks.ask(api.CLIENT_CONNECT, MALLORY) == api.Deny()
    for temperature, said in ((b"20", b"20"), (b"70", b"too hot")):
        message = api.Message(
            client=MALLORY, topic="greenhouse/a/temperature", payload=temperature, qos=0, retain=False
        )
        answer = hooks.ask(api.MESSAGE_PUBLISH, message)
        assert isinstance(answer, api.Message)
        assert answer.payload == said
    assert sent == [(b"alarms/greenhouse/a/temperature", b"70", 1, False)]
    assert record.failures == 0


def test_every_point_is_in_the_table_and_no_other() -> None:
    table = TEXT[TEXT.index("| point |") : TEXT.index("\n- Handlers")]
    named = []
    for row in table.splitlines()[2:]:
        group = ""
        for name in re.findall(r"`([a-z.]+)`", row.split("|")[1]):
            group = group if name.startswith(".") else name.partition(".")[0]
            named.append(group + name if name.startswith(".") else name)
    assert sorted(named) == sorted(point.name for point in api.POINTS)


@pytest.mark.parametrize("configuration", [block for block in blocks("toml") if "[project]" not in block])
def test_its_configuration_is_a_configuration(configuration: str, tmp_path: Path) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text(configuration)
    load(file=file, environment={})
