"""Alerts and the dashboard ask only for metrics that nodes and the operator have, with the labels that they have."""

import json
import re
from collections import Counter

import pytest
import yaml

from flockmq import bounds
from flockmq.telemetry.metrics import CATALOGUE
from flockmq_operator.metrics import FAMILIES, Metrics
from unit.operator.schema import ROOT
from unit.operator.test_chart import installed

MONITORING = ROOT / "manifests/monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
PODS = {pods["metadata"]["name"]: pods for pods in yaml.safe_load_all((MONITORING / "podmonitor.yaml").read_text())}


def labels_of_the_operator() -> dict[str, set[str]]:
    metrics = Metrics()
    metrics.conditions["fleet", "demo"] = [{"type": "Stalled", "status": "True"}]
    metrics.users["fleet", "demo"] = Counter({"Applied": 1})
    metrics.missed_backups["fleet", "demo"] = 2
    lines = metrics.text().splitlines()
    return {
        name: {label for line in lines if line.startswith(f"{name}{{") for label in re.findall(r'(\w+)="', line)}
        for name in FAMILIES
    }


NAMES: dict[str, set[str]] = {
    metric.name + ("_total" if metric.kind == "counter" else ""): set(metric.labels) for metric in CATALOGUE
} | labels_of_the_operator()
OF_THE_POD = {"namespace", "pod", "app_kubernetes_io_instance", "app_kubernetes_io_component"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_nodes_tell(expression: str) -> None:
    names = set(re.findall(r"flockmq_\w+", expression))
    assert names
    assert names <= NAMES.keys()
    labels = OF_THE_POD.union(*(NAMES[name] for name in names))
    asked = re.findall(r"[{,](\w+)[!=]~?=?\"", expression)
    grouped = [label.strip() for by in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in by.split(",")]
    assert {*asked, *grouped} <= labels
    for bound in re.findall(r'flockmq_bound\{name="(\w+)"', expression):
        assert hasattr(bounds, bound.upper())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert len(rule["annotations"]["description"].split()) > 8
    known = OF_THE_POD.union(*(NAMES[name] for name in re.findall(r"flockmq_\w+", str(rule["expr"]))))
    assert set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) <= known


def test_operators_that_are_away_are_told_too() -> None:
    """One that isn't there tells nothing, so no number of its own says so."""
    away = [rule for rule in RULES if "absent(flockmq_operator_leading)" in rule["expr"]]
    assert [rule["alert"] for rule in away] == ["FlockMQOperatorAway"]


def test_the_operator_is_scraped_where_it_tells() -> None:
    pods = PODS["flockmq-operator"]["spec"]
    template = installed("Deployment")["spec"]["template"]
    assert pods["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in pods["podMetricsEndpoints"]} <= ports
