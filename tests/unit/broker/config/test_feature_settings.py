"""`[plugins]`, `[[rewrite]]`, `[[auto_subscribe]]` and `[sys_topics]` in a node's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.config.load import load
from flockmq.errors import ConfigError

FILE = """
[plugins]
enabled = ["sample"]
[plugins.settings.sample]
greeting = "hi"
limits = [1, 2]
[[rewrite]]
action = "publish"
source_topic = "x/#"
re = "^x/y/(.+)$"
dest_topic = "z/$1"
[[auto_subscribe]]
topic = "c/${clientid}/#"
qos = 1
[sys_topics]
sys_msg_interval = "2m"
[sys_topics.sys_event_messages]
client_connected = false
"""


def test_the_sections_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text(FILE)
    config = load(file=file, environment={})
    assert config.plugins.enabled == ("sample",)
    assert config.plugins.settings == {"sample": {"greeting": "hi", "limits": [1, 2]}}
    (rule,) = config.rewrite
    assert (rule.action, rule.source_topic, rule.re, rule.dest_topic) == ("publish", "x/#", "^x/y/(.+)$", "z/$1")
    (subscribed,) = config.auto_subscribe
    assert (subscribed.topic, subscribed.qos, subscribed.rh) == ("c/${clientid}/#", 1, 0)
    assert config.sys_topics.sys_msg_interval == 120
    assert not config.sys_topics.sys_event_messages.client_connected
    assert config.sys_topics.sys_event_messages.client_disconnected


RULE = '"source_topic": "x/#", "re": "^x/(.+)$"'


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("REWRITE", '[{"source_topic": "x"}]', r"FLOCKMQ_REWRITE\[0\].re: is missing"),
        (
            "REWRITE",
            f'[{{{RULE}, "dest_topic": "y/$2"}}]',
            r"FLOCKMQ_REWRITE\[0\]: dest_topic 'y/\$2': \$2: the regular",
        ),
        ("REWRITE", f'[{{{RULE}, "dest_topic": "y/#"}}]', "dest_topic 'y/#': a wildcard, and the action is all"),
        (
            "AUTO_SUBSCRIBE",
            '[{"topic": "a/#/${clientid}"}]',
            r"FLOCKMQ_AUTO_SUBSCRIBE\[0\]: topic 'a/#/\$\{clientid\}'",
        ),
        (
            "AUTO_SUBSCRIBE",
            '[{"topic": "a", "qos": 3}]',
            r"AUTO_SUBSCRIBE\[0\].qos: 3 must be a whole number from 0 to 2",
        ),
        ("AUTO_SUBSCRIBE", '[{"topic": "$share/g/a", "nl": 1}]', "a shared subscription can't have nl = 1"),
        ("SYS_TOPICS__SYS_MSG_INTERVAL", "soon", "in seconds, or for example"),
    ],
)
def test_what_cannot_work_is_refused_at_its_place(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(environment={f"FLOCKMQ_{name}": value})
