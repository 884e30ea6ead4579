"""A tenant whose topics a rewrite rule mounts below its own name: what it says never leads out of there."""

from __future__ import annotations

import pytest

from integration.auth.conftest import Configured
from integration.broker.clients import Client
from integration.broker.test_topics import TOPIC_NAME_INVALID

MOUNT = """
[[rewrite]]
source_topic = "#"
re = "^(.+)$"
dest_topic = "tenants/${clientid}/$1"
"""


@pytest.mark.parametrize("filter", ["#", "$exclusive/#", "$share/g/#"])
def test_no_filter_leads_out_of_a_mount(fleet: Configured, filter: str) -> None:
    node = fleet.single(MOUNT)
    with Client(node.mqtt, "mallory") as mallory, Client(node.mqtt, "alice") as alice:
        mallory.subscribe(filter)
        alice.publish("secret", "of alice")
        mallory.publish("own", "of mallory")
        assert mallory.receive()[:2] == ("tenants/mallory/own", "of mallory")
        mallory.unsubscribe(filter)


def test_no_topic_leads_out_of_a_mount(fleet: Configured) -> None:
    node = fleet.single(MOUNT)
    with Client(node.mqtt, "mallory") as mallory, Client(node.mqtt, "alice") as alice:
        alice.subscribe("#", 1)
        assert alice.ask_for("$delayed/#") == 1
        mallory.publish("$delayed/1/tenants/alice/x", "forged")
        alice.publish("$delayed/2/x", "own")
        assert alice.receive()[:2] == ("tenants/alice/x", "own")
        for topic in ("$share/g/x", "$exclusive/x", "$other/x", "$x", "$delayed/1/$other/x", "$delayed/1/$share/g/x"):
            assert mallory.publish(topic, "forged") == TOPIC_NAME_INVALID, topic
