"""Every number has a name, a meaning and one place in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flockmq import bounds
from flockmq.management.scrapes import samples_of
from flockmq.management.view import NodeRow, NodeStatus, ShardStatus
from flockmq.telemetry import metrics
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.sample import Sample


class CountingNode:
    """A node that is ready, and has nothing else to say."""

    def ready(self) -> tuple[bool, str]:
        return True, "ready"

    def draining(self) -> bool:
        return False

    def nodes(self) -> Sequence[NodeRow]:
        return []

    def status(self) -> NodeStatus:
        return NodeStatus(
            name="n",
            incarnation="n@1",
            role="replicant",
            version="0.1.0",
            build="compiled",
            ready=True,
            state="ready",
            uptime_s=2.0,
            leader="c@1",
            cluster_version=2,
            shards=[ShardStatus(shard="route", applied="1-7", lag_entries=3, lag_ms=250.0)],
        )


def scrape(*samples: Sample) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.exposition(metrics.registry(partial(samples_of, CountingNode(), lambda: samples))).decode()
    return {
        (found.name, tuple(sorted(found.labels.items()))): found.value
        for family in text_string_to_metric_families(text)
        for found in family.samples
    }


def test_every_counter_of_the_hot_path_is_shown() -> None:
    shown = {*metrics.FROM_COUNTERS, *metrics.BY_REASON, *metrics.BY_QOS, "packets_received"}
    assert shown == {name for name in dir(Counters()) if not name.startswith("_")}


def test_reasons_are_shown_by_their_names_and_add_up_to_their_counter() -> None:
    counters, reasons = Counters(), metrics.Reasons("connects_refused", "before_connect")
    counters.connects_refused = 5
    for reason in (0x87, 0x87, 0xFF):
        reasons.note(reason)
    shown = scrape(*reasons.samples(counters))
    assert shown["flockmq_connects_refused_total", (("reason", "not_authorized"),)] == 2
    assert shown["flockmq_connects_refused_total", (("reason", "0xff"),)] == 1
    assert shown["flockmq_connects_refused_total", (("reason", "before_connect"),)] == 2


def test_counters_are_read_when_asked() -> None:
    counters = Counters()
    counters.messages_received, counters.dropped_queue_full, counters.connections = 5, 2, 9
    counters.messages_received_qos1, counters.messages_received_qos2 = 2, 1
    shown = scrape(*metrics.counter_samples(counters))
    counters.packets_received[8] = 7
    assert scrape(*metrics.counter_samples(counters))["flockmq_packets_received_total", (("type", "subscribe"),)] == 7
    by_qos = [shown["flockmq_messages_received_total", (("qos", qos),)] for qos in "012"]
    assert by_qos == [2, 2, 1]
    assert shown["flockmq_messages_dropped_total", (("cause", "queue_full"),)] == 2
    assert shown["flockmq_connections", ()] == 9


def test_lag_is_shown_per_shard_in_entries_and_seconds() -> None:
    shown = scrape()
    assert shown["flockmq_rlog_lag_entries", (("shard", "route"),)] == 3
    assert shown["flockmq_rlog_lag_seconds", (("shard", "route"),)] == 0.25


def test_every_bound_is_shown_with_its_unit() -> None:
    shown = scrape()
    named = {dict(labels)["name"]: value for (name, labels), value in shown.items() if name == "flockmq_bound"}
    assert named == {n.lower(): v for n, v in vars(bounds).items() if n.isupper() and isinstance(v, int | float)}
    assert ("flockmq_bound", (("name", "config_max_bytes"), ("unit", "bytes"))) in shown


def test_the_process_is_shown_too() -> None:
    assert ("process_resident_memory_bytes", ()) in scrape()


def test_names_follow_the_conventions_and_each_has_a_help_text() -> None:
    for metric in metrics.CATALOGUE:
        assert re.fullmatch(r"flockmq_[a-z_]+", metric.name)
        assert not metric.name.endswith("_total")
        assert metric.help.endswith(".")
    assert len({metric.name for metric in metrics.CATALOGUE}) == len(metrics.CATALOGUE)


def test_a_number_that_is_not_in_the_catalogue_is_a_defect() -> None:
    with pytest.raises(KeyError, match="flockmq_secret"):
        scrape(Sample("flockmq_secret", 1))
