"""The chart and what is rendered from it: one CRD, and no right but those the operator uses."""

import json

import msgspec
import pytest
import yaml

from flockmq_operator.handlers import WATCHED
from flockmq_operator.kube import RESOURCES
from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import OWNED_KINDS
from flockmq_operator.plan import KEPT_KINDS
from flockmq_operator.rebalances.spec import REBALANCE_KIND
from flockmq_operator.settings import Settings
from flockmq_operator.spec import KIND
from flockmq_operator.users.spec import USER_KIND
from unit.operator.schema import CRD, REBALANCE_CRD, ROOT, USER_CRD
from unit.operator.test_resources import restricted_violations

INSTALL: list[Manifest] = [item for item in yaml.safe_load_all((ROOT / "manifests/install.yaml").read_text()) if item]
CHART = ROOT / "charts/flockmq"


def installed(kind: str, name: str = "flockmq-operator") -> Manifest:
    return next(item for item in INSTALL if item["kind"] == kind and item["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("plural", "crd"), [("mqttclusters", CRD), ("mqttusers", USER_CRD), ("mqttrebalances", REBALANCE_CRD)]
)
def test_the_chart_and_the_plain_manifest_hold_the_crds(plural: str, crd: Manifest) -> None:
    assert (CHART / f"files/{plural}.yaml").resolve() == ROOT / f"crds/{plural}.yaml"
    assert installed("CustomResourceDefinition", f"{plural}.flockmq.io") == crd


@pytest.mark.parametrize("crd", [CRD, USER_CRD, REBALANCE_CRD])
def test_helm_upgrades_a_crd_and_never_deletes_it(crd: Manifest) -> None:
    assert not (CHART / "crds").exists(), "Helm installs what is there once, and leaves it as it is"
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert ".Values.crds.install" in (CHART / "templates/definition.yaml").read_text()


def test_the_operators_user_is_nowhere_fixed() -> None:
    """OpenShift gives each namespace users of its own, and refuses others."""
    template = (CHART / "templates/operator.yaml").read_text()
    lines = [line.strip() for line in template.splitlines()]
    begin = lines.index("{{- with .Values.runAsUser }}")
    said = ["runAsUser: {{ int64 . }}", "runAsGroup: {{ int64 . }}", "{{- end }}"]
    assert lines[begin + 1 : begin + 4] == said
    assert template.count("runAsUser:") == 1
    user: int = yaml.safe_load((CHART / "values.yaml").read_text())["runAsUser"]
    pod = installed("Deployment")["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (user, user)
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["runAsUser"]["type"] == ["integer", "null"]


def rights() -> dict[tuple[str, str], set[str]]:
    granted: dict[tuple[str, str], set[str]] = {}
    for rule in installed("Role")["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def test_the_operator_has_the_rights_it_uses_and_no_others() -> None:
    needed: dict[str, set[str]] = {kind: {"get", "list", "create", "patch"} for kind in OWNED_KINDS}
    for kind in OWNED_KINDS:
        if kind not in KEPT_KINDS:
            needed[kind].add("delete")
    needed |= {
        "Secret": {"get", "list", "watch", "create", "patch"},
        "Pod": {"list", "patch", "delete"},
        "ReplicaSet": {"list"},
        "ControllerRevision": {"list", "create", "delete"},
        "Event": {"create"},
        KIND: {"get", "list"},
        USER_KIND: {"list", "patch"},
        REBALANCE_KIND: {"list", "patch"},
    }
    for kind in (*WATCHED, KIND, USER_KIND, REBALANCE_KIND):
        needed[kind] |= {"list", "watch"}
    expected = {(RESOURCES[kind].group, RESOURCES[kind].plural): verbs for kind, verbs in needed.items()}
    for kind in (KIND, USER_KIND, REBALANCE_KIND):
        expected[RESOURCES[kind].group, f"{RESOURCES[kind].plural}/status"] = {"patch"}
    assert rights() == expected


def test_the_operator_has_rights_in_its_own_namespace_alone() -> None:
    bound = [item for item in INSTALL if item["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert {(item["kind"], item["metadata"]["namespace"]) for item in bound} == {("RoleBinding", "flockmq")}
    cluster_wide = [item["metadata"]["name"] for item in INSTALL if item["kind"] == "ClusterRole"]
    people = ["flockmq-mqttclusters-edit", "flockmq-mqttclusters-view"]
    assert cluster_wide == ["flockmq-report-driver", *people], "no binding here gives them to anybody"


def test_no_rule_anywhere_has_a_wildcard() -> None:
    rules = [rule for item in INSTALL for rule in item.get("rules", ())]
    assert rules
    assert not any("*" in values for rule in rules for values in rule.values())


def test_the_operators_pod_satisfies_the_restricted_standard() -> None:
    assert list(restricted_violations(installed("Deployment")["spec"]["template"]["spec"])) == []


def test_the_operators_pod_sets_each_setting_that_has_no_default() -> None:
    container = installed("Deployment")["spec"]["template"]["spec"]["containers"][0]
    given = {entry["name"].lower() for entry in container["env"]}
    fields = msgspec.structs.fields(Settings)
    assert {field.name for field in fields if field.required} <= given <= {field.name for field in fields}


def test_the_values_and_their_schema_name_the_same_things() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}


def test_the_charts_version_is_the_operators() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "operator/pyproject.toml").read_text()
    assert f'version = "{chart["version"]}"' in project


def test_the_charts_readme_names_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    readme = (CHART / "README.md").read_text()
    assert [name for name in values if f"`{name}" not in readme] == []


def test_the_commands_in_the_notes_can_be_copied() -> None:
    """A here-document ends by a line that is its word alone; each later command is for the namespace of the first."""
    lines = (CHART / "templates/NOTES.txt").read_text().splitlines()
    (begins,) = [number for number, line in enumerate(lines) if "<<" in line]
    ends = lines.index("EOF", begins)
    document = yaml.safe_load("\n".join(lines[begins + 1 : ends]))
    assert (document["kind"], document["metadata"], document["spec"]) == (KIND, {"name": "demo"}, {})
    first = next(line for line in lines if line.startswith("kubectl"))
    assert first.startswith("kubectl config set-context --current --namespace")
    before_use = "\n".join(lines).partition('"$password"')[0]
    assert "password=$(" in before_use
