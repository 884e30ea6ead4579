"""The backup's CronJob."""

import pytest

from flockmq_operator.manifest import Manifest, Ref
from unit.operator.built import built, components, restricted_violations, templates
from unit.operator.test_plan import converge, running
from unit.operator.test_resources_network_policy import reached
from unit.operator.world import NAMESPACE, context

CRON_JOB = Ref("CronJob", "demo-backup")
CLAIM = {"kind": "PersistentVolumeClaim", "metadata": {"name": "backups", "namespace": NAMESPACE, "labels": {}}}
BACKUP: Manifest = {"schedule": "0 3 * * *", "claimName": "backups"}
SPEC: Manifest = {"backup": BACKUP}
REPLICATED: Manifest = {**SPEC, "redis": {"replicas": 3}}
OWN_TLS: Manifest = {**SPEC, "management": {"tls": {"secretName": "shown"}}, "redis": {"tls": False}}


def claim(name: str = "backups") -> Manifest:
    return {**CLAIM, "metadata": {**CLAIM["metadata"], "name": name}}


def pod(spec: Manifest) -> Manifest:
    found: Manifest = templates(spec)["backup"]["spec"]
    return found


def env(spec: Manifest) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod(spec)["containers"][0]["env"]}


def files(spec: Manifest, volume: str) -> set[tuple[str, str]]:
    """(Secret, path) of a volume of Secrets."""
    (found,) = [item for item in pod(spec)["volumes"] if item["name"] == volume]
    sources = [source["secret"] for source in found["projected"]["sources"]]
    return {(source["name"], item["path"]) for source in sources for item in source["items"]}


def test_there_is_none_unless_the_spec_says_so() -> None:
    assert not [name for name in built() if "backup" in name.name]


@pytest.mark.parametrize("spec", [SPEC, REPLICATED, OWN_TLS])
def test_its_pod_meets_the_restricted_standard(spec: Manifest) -> None:
    assert list(restricted_violations(pod(spec))) == []


def test_runs_never_overlap_and_are_as_often_as_the_spec_says() -> None:
    spec = built({"backup": {**BACKUP, "suspend": True, "timeZone": "Europe/Berlin"}})[CRON_JOB]["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("0 3 * * *", "Europe/Berlin", True)
    assert spec["concurrencyPolicy"] == "Forbid"
    assert built({"backup": BACKUP})[CRON_JOB]["spec"]["timeZone"] == "Etc/UTC", "wherever the API server runs"


def test_the_tables_come_first_then_redis_into_the_claim_that_the_spec_names() -> None:
    (tables,), (redis,) = pod(SPEC)["initContainers"], pod(SPEC)["containers"]
    assert tables["image"] == "broker:1"
    assert tables["args"][-3:] == ["tables", "save", "/backups/demo/.new"]
    assert (redis["image"], redis["command"]) == ("redis:1", ["sh", "/etc/flockmq/backup.sh", "take"])
    assert env(SPEC)["KEEP"] == "7"
    assert {"name": "backups", "persistentVolumeClaim": {"claimName": "backups"}} in pod(SPEC)["volumes"]


def test_of_a_redis_with_replicas_it_knows_all_pods() -> None:
    assert env(SPEC)["HOSTS"] == "demo-redis"
    assert env(REPLICATED)["HOSTS"] == "demo-redis-0 demo-redis-1 demo-redis-2"


def test_each_container_has_the_secrets_that_it_needs_and_no_others() -> None:
    assert files(SPEC, "secrets") == {("demo-api-key", "api-key")}
    assert files(SPEC, "redis-secrets") == {("demo-redis", "password"), ("demo-redis-tls", "tls/ca.crt")}
    assert env(SPEC)["TLS"] == "/etc/flockmq/secrets/tls"
    for container, own, others in (("initContainers", "secrets", "redis-secrets"), ("containers",) * 2 + ("secrets",)):
        mounted = {mount["name"] for mount in pod(SPEC)[container][0]["volumeMounts"]}
        assert others not in mounted, own


def test_it_trusts_the_certificate_of_management_and_no_other() -> None:
    args = pod(OWN_TLS)["initContainers"][0]["args"]
    assert args[1:3] == ["--url", "https://demo-core:18083"]
    assert args[args.index("--pin") + 1] == "/etc/flockmq/secrets/management/tls.crt"
    assert files(OWN_TLS, "secrets") == {("demo-api-key", "api-key"), ("shown", "management/tls.crt")}
    assert files(OWN_TLS, "redis-secrets") == {("demo-redis", "password")}
    assert "TLS" not in env(OWN_TLS)


def test_it_reaches_redis_and_management_and_nothing_reaches_it() -> None:
    assert reached("demo-backup", SPEC) == {6379: ["redis"], 18083: ["core"]}
    objects = built(SPEC)
    assert objects[Ref("NetworkPolicy", "demo-backup")]["spec"]["ingress"] == []
    for policy, port in (("demo-redis", 6379), ("demo-core", 18083)):
        rules = objects[Ref("NetworkPolicy", policy)]["spec"]["ingress"]
        peers = [peer for rule in rules if rule["ports"][0]["port"] == port for peer in rule["from"]]
        assert "backup" in components([peer for peer in peers if len(peer) == 1])


def test_it_goes_where_redis_may_go() -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    said = {"nodeSelector": {"disk": "fast"}, "tolerations": tolerations, "affinity": {"podAntiAffinity": {}}}
    found = pod({**SPEC, "redis": {"podTemplate": {"spec": said}}})
    assert (found["nodeSelector"], found["tolerations"]) == ({"disk": "fast"}, tolerations)
    assert "affinity" not in found, "it would keep the pod from where Redis is"


async def test_a_claim_that_isnt_there_is_said_and_concerns_nothing_else() -> None:
    world = await running(SPEC)
    assert CRON_JOB not in world.objects
    assert Ref("CronJob", "demo-report") in world.objects
    plan = await world.plan(context(SPEC))
    assert [(problem.reason, problem.blocks) for problem in plan.problems] == [("ClaimMissing", {"backup"})]
    assert "spec.backup.claimName: PersistentVolumeClaim backups in namespace fleet" in plan.problems[0].message
    world.put(claim())
    await converge(world, context(SPEC))
    assert CRON_JOB in world.objects
