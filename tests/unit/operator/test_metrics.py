"""What the operator tells Prometheus is what Prometheus reads."""

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from flockmq_operator.metrics import FAMILIES, Metrics
from flockmq_operator.status.hibernated import REASON


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """By the name and the values of the labels."""
    families = list(text_string_to_metric_families(metrics.text()))
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_passes_are_counted_by_what_came_of_them_and_by_how_long_they_took() -> None:
    metrics = Metrics()
    for seconds in (0.1, 0.3, 100.0):
        metrics.passed("unchanged", seconds)
    metrics.passed("failed", 0.0)
    found = samples(metrics)
    passes = "flockmq_operator_passes_total"
    assert [found[passes, (result,)] for result in ("changed", "unchanged", "failed")] == [0, 3, 1]
    bucket = "flockmq_operator_pass_seconds_bucket"
    assert [found[bucket, (bound,)] for bound in ("0.1", "0.25", "0.5", "60.0", "+Inf")] == [2, 2, 3, 3, 4]
    assert found["flockmq_operator_pass_seconds_count", ()] == 4
    assert found["flockmq_operator_pass_seconds_sum", ()] == 100.4


def test_a_condition_is_told_unless_it_is_unknown() -> None:
    metrics = Metrics()
    statuses = {"Stalled": "True", "Ready": "False", "Available": "Unknown"}
    metrics.conditions["fleet", "demo"] = [{"type": kind, "status": status} for kind, status in statuses.items()]
    found = samples(metrics)
    told = {labels: value for (name, labels), value in found.items() if name == "flockmq_operator_condition"}
    assert told == {("fleet", "demo", "Stalled"): 1, ("fleet", "demo", "Ready"): 0}
    assert found["flockmq_operator_clusters", ()] == 1


def test_who_hibernates_isnt_told_as_unavailable() -> None:
    """Somebody would be called at night for a cluster that is as its spec asks."""
    metrics = Metrics()
    metrics.conditions["fleet", "demo"] = [{"type": "Available", "status": "False", "reason": REASON}]
    assert not [name for name, _ in samples(metrics) if name == "flockmq_operator_condition"]
    metrics.conditions["fleet", "demo"] = [{"type": "Available", "status": "False", "reason": "NoQuorum"}]
    assert samples(metrics)["flockmq_operator_condition", ("fleet", "demo", "Available")] == 0


def test_mqtt_users_are_counted_by_how_they_are() -> None:
    metrics = Metrics()
    metrics.users["fleet", "demo"] = Counter({"Applied": 2, "SecretMissing": 1})
    found = samples(metrics)
    told = {labels: value for (name, labels), value in found.items() if name == "flockmq_operator_users"}
    assert told == {("fleet", "demo", "Applied"): 2, ("fleet", "demo", "SecretMissing"): 1}


def test_missed_backups_are_told_where_there_are_backups() -> None:
    metrics = Metrics()
    metrics.missed_backups["fleet", "demo"] = 2
    assert samples(metrics)["flockmq_operator_missed_backups", ("fleet", "demo")] == 2


def test_each_family_has_a_kind_and_a_meaning() -> None:
    metrics = Metrics()
    metrics.missed_backups["fleet", "demo"] = 0
    metrics.conditions["fleet", "demo"] = [{"type": "Ready", "status": "True"}]
    metrics.users["fleet", "demo"] = Counter({"Applied": 2})
    families = list(text_string_to_metric_families(metrics.text()))
    assert {family.name + ("_total" if family.type == "counter" else "") for family in families} == FAMILIES.keys()
    assert all(family.type != "unknown" and family.documentation for family in families)
