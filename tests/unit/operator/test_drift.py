"""Drift, on objects that a real API server (1.34.4) kept: each as it was applied, and as it was read back."""

import copy
import json
from pathlib import Path

import pytest

from flockmq_operator.drift import drift
from flockmq_operator.manifest import Manifest

PAIRS: dict[str, dict[str, Manifest]] = {
    f"{pair['manifest']['kind']} {pair['manifest']['metadata']['name']}": pair
    for pair in json.loads((Path(__file__).parent / "recorded.json").read_text())
}


def pair(name: str) -> tuple[Manifest, Manifest]:
    recorded = copy.deepcopy(PAIRS[name])
    return recorded["manifest"], recorded["live"]


@pytest.mark.parametrize("name", PAIRS)
def test_what_was_applied_has_not_drifted(name: str) -> None:
    assert drift(*pair(name)) == []


def test_a_changed_value_is_drift() -> None:
    desired, live = pair("Deployment demo-replicant")
    live["spec"]["replicas"] = 7
    assert drift(desired, live) == ["spec.replicas"]


def test_a_value_that_the_spec_changed_is_drift() -> None:
    desired, live = pair("Deployment demo-replicant")
    desired["spec"]["template"]["spec"]["containers"][0]["image"] = "b:2"
    assert drift(desired, live) == ["spec.template.spec.containers[flockmq].image"]


def test_a_field_that_somebody_removed_is_drift() -> None:
    desired, live = pair("StatefulSet demo-core")
    del live["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert drift(desired, live) == ["spec.template.spec.securityContext.runAsNonRoot"]


def test_a_field_that_somebody_took_is_drift_even_at_the_same_value() -> None:
    desired, live = pair("NetworkPolicy demo-core")
    del live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ingress"]
    assert drift(desired, live) == ["spec.ingress"]


def test_a_no_that_somebody_removed_is_drift_for_it_may_not_be_what_is_so_without_it() -> None:
    desired, live = pair("Deployment demo-defaults")
    container = live["spec"]["template"]["spec"]["containers"][0]
    owned = live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    container["securityContext"] = {}
    del owned['k:{"name":"shipper"}']["f:securityContext"]
    assert drift(desired, live) == ["spec.template.spec.containers[shipper].securityContext"]


def test_one_element_more_in_a_list_owned_as_a_whole_is_drift() -> None:
    desired, live = pair("NetworkPolicy demo-core")
    live["spec"]["ingress"].append({})
    assert drift(desired, live) == ["spec.ingress"]


def test_an_element_that_somebody_added_to_a_keyed_list_is_theirs() -> None:
    desired, live = pair("Deployment demo-replicant")
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh", "image": "m:1"})
    assert drift(desired, live) == []


@pytest.mark.parametrize("wrong", ["7", 7, None, ["7"]])
def test_an_element_that_the_spec_made_no_map_of_is_drift_that_the_api_server_refuses(wrong: object) -> None:
    desired, live = pair("Deployment demo-defaults")
    desired["spec"]["template"]["spec"]["containers"][0]["ports"] = [wrong]
    assert drift(desired, live)[0] == "spec.template.spec.containers[shipper].ports"


def test_fields_of_others_are_theirs() -> None:
    desired, live = pair("Service demo")
    live["metadata"]["annotations"]["cloud.example/id"] = "7"
    live["spec"]["externalTrafficPolicy"] = "Local"
    assert drift(desired, live) == []


def test_a_field_that_the_manifest_has_no_more_is_drift() -> None:
    desired, live = pair("Service demo")
    del desired["metadata"]["annotations"]
    assert drift(desired, live) == ["metadata.annotations"]


def test_an_element_that_the_manifest_has_no_more_is_drift() -> None:
    desired, live = pair("Deployment demo-replicant")
    del desired["spec"]["template"]["spec"]["imagePullSecrets"]
    desired["spec"]["template"]["spec"]["containers"][0]["env"].pop()
    assert drift(desired, live) == [
        "spec.template.spec.containers.env[FLOCKMQ_NODE__HOST]",
        "spec.template.spec.imagePullSecrets",
    ]


def test_quantities_are_compared_as_numbers() -> None:
    desired, live = pair("Deployment demo-replicant")
    resources = desired["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert resources["cpu"] == "1000m"
    assert live["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    resources["cpu"] = "1001m"
    assert drift(desired, live) == ["spec.template.spec.containers[flockmq].resources.requests.cpu"]


def test_an_object_that_was_never_applied_lacks_everything() -> None:
    desired, live = pair("ConfigMap demo-config")
    live["metadata"]["managedFields"] = []
    assert sorted(drift(desired, live)) == ["data", "metadata"]
