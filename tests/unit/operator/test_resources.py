"""What all builders keep to: the restricted standard, owners and labels, no secret in a pod's template."""

import json

import pytest

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.resources.labels import CONFIG_DIGEST
from unit.operator.built import COMPONENTS, built, restricted_violations, templates
from unit.operator.world import NAMESPACE, UID


def test_the_checker_of_the_standard_finds_an_ordinary_pod_at_fault() -> None:
    pod = {"hostNetwork": True, "volumes": [{"name": "v", "hostPath": {}}], "containers": [{"name": "c"}]}
    assert set(restricted_violations(pod)) == {
        "hostNetwork", "volume v", "allowPrivilegeEscalation", "runAsNonRoot", "seccompProfile", "capabilities",
    }  # fmt: skip


@pytest.mark.parametrize("component", COMPONENTS)
class TestEveryPod:
    def test_satisfies_the_restricted_standard(self, component: str) -> None:
        assert list(restricted_violations(templates()[component]["spec"])) == []

    def test_has_a_read_only_root_and_no_token(self, component: str) -> None:
        pod = templates()[component]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in pod["containers"])

    def test_has_a_memory_limit_and_runs_as_the_images_user(self, component: str) -> None:
        pod = templates()[component]["spec"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert all("memory" in container["resources"]["limits"] for container in pod["containers"])

    def test_mounts_only_volumes_it_has(self, component: str) -> None:
        pod = templates()[component]["spec"]
        claims = {"data"} if component in ("core", "redis") else set()
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claims

    def test_uses_a_service_account_that_is_made(self, component: str) -> None:
        assert Ref("ServiceAccount", templates()[component]["spec"]["serviceAccountName"]) in built()


@pytest.mark.parametrize(
    "manifest", built({"autoscaling": {"maxReplicas": 3}}).values(), ids=lambda item: str(ref(item))
)
def test_every_object_is_owned_labelled_and_in_the_namespace(manifest: Manifest) -> None:
    metadata = manifest["metadata"]
    assert metadata["namespace"] == NAMESPACE
    assert [(owner["uid"], owner["controller"]) for owner in metadata["ownerReferences"]] == [(UID, True)]
    assert metadata["labels"]["app.kubernetes.io/instance"] == "demo"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "flockmq-operator"
    assert "finalizers" not in metadata


def test_no_secret_value_stands_in_a_pod_template_or_a_config_map() -> None:
    objects = built()
    values = [value for name, item in objects.items() if name.kind == "Secret" for value in item["data"].values()]
    rest = json.dumps([item for name, item in objects.items() if name.kind != "Secret"])
    assert values
    assert not any(value in rest for value in values)


def test_secrets_are_drawn_anew_each_time_and_long() -> None:
    secret = Ref("Secret", "demo-redis")
    assert built()[secret]["data"]["password"] != built()[secret]["data"]["password"]
    assert len(built()[secret]["data"]["password"]) >= 64


def test_cores_start_together_and_are_restarted_by_the_operator() -> None:
    spec = built()[Ref("StatefulSet", "demo-core")]["spec"]
    assert (spec["podManagementPolicy"], spec["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})
    assert built()[Ref("Service", "demo-core")]["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("spec", "rolled"),
    [
        ({"mqtt": {"maxInflight": 7}}, {"core", "replicant"}),
        ({"config": "[zones.devices]\nmax_inflight = 1"}, {"core", "replicant"}),
        ({"authentication": {"allowAnonymous": True}}, {"core", "replicant"}),
        ({"listeners": [{"name": "mqtt", "port": 1884}]}, {"replicant"}),
        ({"listeners": [{"name": "mqtt", "port": 1883, "nodePort": 31883}]}, set()),
        ({"redis": {"resources": {"limits": {"memory": "2Gi"}}}}, {"redis"}),
    ],
)
def test_a_change_of_a_configuration_file_changes_the_pods_that_read_it(spec: Manifest, rolled: set[str]) -> None:
    def digests(spec: Manifest) -> dict[str, str]:
        return {
            component: template["metadata"]["annotations"][CONFIG_DIGEST]
            for component, template in templates(spec).items()
            if component != "report"
        }

    before, after = digests({}), digests(spec)
    assert {component for component in before if before[component] != after[component]} == rolled


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({"networkPolicy": {"enabled": False}}, "NetworkPolicy"),
        ({"report": {"enabled": False}}, "CronJob"),
        ({}, "HorizontalPodAutoscaler"),
    ],
)
def test_what_the_spec_turns_off_is_not_made(spec: Manifest, missing: str) -> None:
    assert missing not in {name.kind for name in built(spec)}
