"""A report with executors: the job's pod is the driver, and the executors that Spark makes are restricted too."""

import json

import pytest

from flockmq_analytics import pods
from flockmq_analytics.cli import make_parser
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.resources.spark import SUBMIT
from unit.operator.built import built, restricted_violations
from unit.operator.schema import ROOT
from unit.operator.test_plan import converge, running
from unit.operator.world import context

S3 = {"bucket": "events", "credentialsSecretRef": {"name": "keys"}}
SPEC: Manifest = {"report": {"storage": {"s3": S3}, "executors": {"replicas": 3}}}


def spec(**executors: object) -> Manifest:
    return {"report": {**SPEC["report"], "executors": {"replicas": 3, **executors}}}


def pod(name: str = "demo-report", spec: Manifest = SPEC) -> Manifest:
    found: Manifest = built(spec)[Ref("CronJob", name)]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def args(spec: Manifest = SPEC) -> list[str]:
    found: list[str] = pod(spec=spec)["containers"][0]["args"]
    return found


def settings(spec: Manifest = SPEC) -> dict[str, str]:
    said = args(spec)
    pairs = [said[number + 1].partition("=") for number, part in enumerate(said) if part == "--conf"]
    return {name: value for name, _, value in pairs}


def config_map(spec: Manifest = SPEC) -> Manifest:
    """The one that the driver mounts."""
    (name,) = [volume["configMap"]["name"] for volume in pod(spec=spec)["volumes"] if volume["name"] == "config"]
    return built(spec)[Ref("ConfigMap", name)]


def executor(spec: Manifest = SPEC) -> Manifest:
    made: Manifest = json.loads(config_map(spec)["data"]["executor.json"])
    return made


def test_the_driver_submits_the_report_and_the_ingest_stays_by_itself() -> None:
    said = args()
    assert said[:3] == ["driver", "--master", "k8s://https://kubernetes.default.svc"]
    report = said[said.index(SUBMIT) + 1 :]
    assert make_parser().parse_args(report).output == "s3a://events/demo"
    assert pods.driver(said[1:], {})[1:4] == ["--deploy-mode", "client", "--master"]
    ingest = pod("demo-ingest")
    assert ingest["containers"][0]["args"][0] == "ingest"
    assert (ingest["serviceAccountName"], ingest["automountServiceAccountToken"]) == ("demo-report", False)


def test_the_program_that_is_submitted_is_in_the_image() -> None:
    assert f"analytics/submit.py {SUBMIT}" in (ROOT / "Dockerfile.analytics").read_text()
    assert (ROOT / "analytics/submit.py").is_file()


def test_executors_find_the_driver_by_its_pods_address_and_end_with_it() -> None:
    env = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in pod()["containers"][0]["env"][1:]}
    assert env == {"POD_NAME": "metadata.name", "SPARK_DRIVER_BIND_ADDRESS": "status.podIP"}
    said = settings()
    assert said["spark.driver.host"] == "$(SPARK_DRIVER_BIND_ADDRESS)"
    assert said["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"
    assert (said["spark.driver.port"], said["spark.blockManager.port"]) == ("7078", "7079")
    assert said["spark.authenticate"] == said["spark.network.crypto.enabled"] == "true"


def test_only_the_driver_has_a_token_and_its_account_is_made() -> None:
    driver = pod()
    assert (driver["serviceAccountName"], driver["automountServiceAccountToken"]) == ("demo-report-driver", True)
    assert Ref("ServiceAccount", "demo-report-driver") in built(SPEC)
    assert Ref("ServiceAccount", "demo-report-driver") not in built()
    made = executor()["spec"]
    assert (made["serviceAccountName"], made["automountServiceAccountToken"]) == ("demo-report", False)


@pytest.mark.parametrize("made", [pod(), executor()["spec"]], ids=["driver", "executor"])
def test_driver_and_executors_satisfy_the_restricted_standard(made: Manifest) -> None:
    assert list(restricted_violations(made)) == []
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in made["containers"])
    mounted = {mount["name"] for container in made["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in made["volumes"]}


def test_executors_run_the_reports_image_with_the_credentials_for_s3_alone() -> None:
    said = settings()
    assert said["spark.kubernetes.container.image"] == "analytics:1"
    assert (
        settings({"report": {**SPEC["report"], "image": "analytics:2"}})["spark.kubernetes.container.image"]
        == "analytics:2"
    )
    made = executor()
    assert made["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
    (container,) = made["spec"]["containers"]
    assert container["name"] == said["spark.kubernetes.executor.podTemplateContainerName"]
    assert {source["secret"]["name"] for source in made["spec"]["volumes"][0]["projected"]["sources"]} == {"keys"}


def test_the_template_is_where_spark_looks_for_it() -> None:
    mounts = {mount["mountPath"] for mount in pod()["containers"][0]["volumeMounts"]}
    assert settings()["spark.kubernetes.executor.podTemplateFile"] in mounts
    assert config_map()["immutable"] is True


def test_executors_have_what_the_spec_gives_them() -> None:
    said = settings()
    assert said["spark.executor.instances"] == "3"
    names = ("spark.executor.cores", "spark.kubernetes.executor.request.cores", "spark.executor.memory")
    assert [said[name] for name in names] == ["1", "1", "1024m"]
    assert "spark.kubernetes.executor.limit.cores" not in said
    resources = {"requests": {"cpu": "1500m"}, "limits": {"cpu": 2, "memory": "8Gi"}}
    said = settings(spec(resources=resources))
    assert [said[name] for name in names] == ["2", "1500m", "4096m"]
    assert said["spark.executor.memoryOverhead"] == "4096m"
    assert said["spark.kubernetes.executor.limit.cores"] == "2"


def test_without_s3_there_are_none() -> None:
    """The definition refuses it; one of before may not."""
    assert pod(spec={"report": {"executors": {"replicas": 3}}})["containers"][0]["args"][0] == "report"


async def test_a_template_that_changed_takes_the_place_of_the_former_one() -> None:
    def of_executors(names: object) -> list[str]:
        return [name.name for name in names if name.kind == "ConfigMap" and "executor" in name.name]  # type: ignore[attr-defined]

    first, second = ({"report": {**SPEC["report"], "storage": {"s3": {**S3, "credentialsSecretRef": None, **more}}}}
                     for more in ({}, {"region": "eu-north-1"}))  # fmt: skip
    world = await running(first)
    (before,) = of_executors(world.objects)
    await converge(world, context(second))
    (after,) = of_executors(world.objects)
    assert before != after
    await converge(world, context({}))
    assert of_executors(world.objects) == []
