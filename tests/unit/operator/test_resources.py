"""What builders make: pods that the restricted standard admits, and the promises that a manifest alone can keep."""

import json
import os
import subprocess
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from flockmq_operator.certificates import REDIS_PODS_MAX, of_redis
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.resources import build, config
from flockmq_operator.resources.labels import CONFIG_DIGEST
from flockmq_operator.resources.redis_users import CORE_RULES, REPLICANT_RULES, SENTINEL_RULES
from unit.operator.schema import ROOT, SCHEMA
from unit.operator.world import NAMESPACE, UID, context

EXTERNAL = {"redis": {"external": {"url": "redis://elsewhere:6379/0", "passwordSecretRef": {"name": "pw", "key": "k"}}}}

IN_THE_CLEAR: Manifest = {"redis": {"tls": False}}
OURS = "ssl_ca_certs=/etc/flockmq/secrets/redis-tls/ca.crt"


def built(spec: Manifest | None = None, floor: int | None = None) -> dict[Ref, Manifest]:
    return {ref(manifest): manifest for manifest in build(context(spec, floor=floor))}


def templates(spec: Manifest | None = None) -> dict[str, Manifest]:
    """Component → pod template."""
    found = {}
    for manifest in built(spec).values():
        template = manifest.get("spec", {}).get("template")
        if manifest["kind"] == "CronJob":
            template = manifest["spec"]["jobTemplate"]["spec"]["template"]
        if template:
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return found


COMPONENTS = ("core", "replicant", "redis", "report")


def restricted_violations(pod: Manifest) -> Iterator[str]:
    """The restricted Pod Security Standard, rule by rule (kubernetes.io: pod-security-standards)."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in pod.get("volumes", ()):
        if not kinds & volume.keys():
            yield f"volume {volume['name']}"
    security = pod.get("securityContext", {})
    if {sysctl["name"] for sysctl in security.get("sysctls", ())} - {"net.ipv4.ip_unprivileged_port_start"}:
        yield "sysctls"
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        own = container.get("securityContext", {})
        both = {**security, **own}
        if own.get("privileged") or own.get("procMount", "Default") != "Default":
            yield "privileged"
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
            yield "runAsNonRoot"
        if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
            yield "capabilities"
        if any("hostPort" in port for port in container.get("ports", ())):
            yield "hostPort"


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


def test_redis_keeps_what_is_acknowledged_within_60_percent_of_its_memory() -> None:
    conf = config.files(context({"redis": {"resources": {"limits": {"memory": "1000Mi"}}}}))["valkey.conf"].splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction", "dir /data"} <= set(conf)
    assert f"maxmemory {600 * 1024 * 1024}" in conf


def test_redis_gets_its_passwords_by_files_never_on_a_command_line() -> None:
    container = templates(IN_THE_CLEAR)["redis"]["spec"]["containers"][0]
    assert container["command"] == ["valkey-server", "/etc/flockmq/valkey.conf"]
    assert templates()["redis"]["spec"]["containers"][0]["command"] == ["sh", "/etc/flockmq/valkey.sh", "alone"]
    assert "args" not in container
    conf = config.files(context())["valkey.conf"].splitlines()
    assert conf[:2] == ["include /etc/flockmq/secrets/redis.conf", "aclfile /etc/flockmq/secrets/users.acl"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_no_container_of_redis_has_a_password_in_its_environment(replicas: int) -> None:
    for container in templates({"redis": {"replicas": replicas}})["redis"]["spec"]["containers"]:
        assert not [entry["name"] for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
        assert "AUTH" not in json.dumps(container["env"])


@pytest.mark.parametrize(("tls", "options"), [(True, "--tls --cacert /etc/flockmq/tls/ca.crt "), (False, "")])
@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_of_redis_read_the_password_from_its_file(probe: str, tls: bool, options: str, tmp_path: Path) -> None:
    (container,) = templates({"redis": {"tls": tls}})["redis"]["spec"]["containers"]
    command = container[probe]["exec"]["command"]
    cli = tmp_path / "valkey-cli"
    cli.write_text('#!/bin/sh\necho "$VALKEYCLI_AUTH $REDISCLI_AUTH $*"\n')
    cli.chmod(0o700)
    (tmp_path / "password").write_text("a secret")
    rest = "ping" if probe == "livenessProbe" else "-e ping"
    here = [word.replace("/etc/flockmq/secrets", str(tmp_path)) for word in command]
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = subprocess.run(here, env={"PATH": path}, check=True, capture_output=True, text=True).stdout.strip()
    assert said.split() == f"{'' if probe == 'livenessProbe' else 'a secret a secret'} {options}{rest}".split()


@pytest.mark.parametrize("replicas", [1, 3])
class TestRedisByTls:
    def test_nothing_listens_in_the_clear(self, replicas: int) -> None:
        conf = config.files(context({"redis": {"replicas": replicas}}))["valkey.conf"].splitlines()
        assert {"port 0", "tls-port 6379", "tls-replication yes", "tls-protocols TLSv1.3"} <= set(conf)

    def test_its_pods_show_certificates_of_an_authority_whose_key_they_have_not(self, replicas: int) -> None:
        pod = templates({"redis": {"replicas": replicas}})["redis"]["spec"]
        (volume,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls"]
        assert volume["secretName"] == "demo-redis-tls"
        assert {item["key"] for item in volume["items"]} == {"ca.crt", "redis.crt", "redis.key"}
        assert volume["defaultMode"] == 0o440
        for container in pod["containers"]:
            (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "tls"]
            assert (mount["mountPath"], mount["readOnly"]) == ("/etc/flockmq/tls", True)
            assert "subPath" not in mount, "such a file is never renewed"
            assert {"name": "TLS", "value": "/etc/flockmq/tls"} in container["env"]
            commands = [container[probe]["exec"]["command"] for probe in ("livenessProbe", "readinessProbe")]
            assert all("--tls" in str(command) or "valkey.sh" in str(command) for command in commands)

    def test_its_certificate_is_valid_for_whatever_it_is_reached_by(self, replicas: int) -> None:
        at = context({"redis": {"replicas": replicas}})
        assert {at.redis, *at.redis_hosts} <= set(of_redis("demo").hosts)
        replicas_max = SCHEMA["properties"]["spec"]["properties"]["redis"]["properties"]["replicas"]["maximum"]
        assert replicas_max == REDIS_PODS_MAX

    def test_who_comes_believes_its_authority_alone(self, replicas: int) -> None:
        for component in ("core", "replicant", "report"):
            pod = templates({"redis": {"replicas": replicas}})[component]["spec"]
            (volume,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets"]
            sources = [source["secret"] for source in volume["sources"]]
            items = [source["items"] for source in sources if source["name"] == "demo-redis-tls"]
            assert items == [[{"key": "ca.crt", "path": "redis-tls/ca.crt"}]]

    def test_it_may_stay_in_the_clear(self, replicas: int) -> None:
        spec = {"redis": {"replicas": replicas, "tls": False}}
        assert "redis-tls" not in json.dumps(list(templates(spec).values()))
        assert "tls" not in json.dumps(templates(spec)["redis"])
        assert "tls" not in config.files(context(spec))["valkey.conf"]
        assert 'url = "redis' in config.files(context(spec))["core.toml"]
        assert "rediss" not in config.files(context(spec))["core.toml"]
        assert Ref("Secret", "demo-redis-tls") not in built(spec)


class TestRedisWithReplicas:
    SPEC: ClassVar[Manifest] = {"redis": {"replicas": 3}}

    def test_each_pod_has_a_service_of_its_own_that_outlives_it(self) -> None:
        objects = built(self.SPEC)
        for number in range(3):
            service = objects[Ref("Service", f"demo-redis-{number}")]["spec"]
            assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"demo-redis-{number}"
            assert service["publishNotReadyAddresses"] is True
            assert [port["port"] for port in service["ports"]] == [6379, 26379]
        assert Ref("Service", "demo-redis-0") not in built()

    def test_pods_start_together_and_are_restarted_by_the_operator(self) -> None:
        spec = built(self.SPEC)[Ref("StatefulSet", "demo-redis")]["spec"]
        assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        assert spec["minReadySeconds"] == 10

    @pytest.mark.parametrize(("replicas", "needed"), [(3, 1), (5, 2)])
    def test_a_majority_must_have_a_write(self, replicas: int, needed: int) -> None:
        conf = config.files(context({"redis": {"replicas": replicas}}))["valkey.conf"].splitlines()
        assert f"min-replicas-to-write {needed}" in conf
        assert "replicas" not in config.files(context())["valkey.conf"]

    def test_the_users_are_those_of_the_documentation(self) -> None:
        said = (ROOT / "docs/redis.md").read_text()
        for rules in (CORE_RULES, REPLICANT_RULES, SENTINEL_RULES.removeprefix("+ping ")):
            assert rules in said

    def test_a_sentinel_stands_beside_each(self) -> None:
        pod = templates(self.SPEC)["redis"]["spec"]
        assert list(restricted_violations(pod)) == []
        redis, sentinel = pod["containers"]
        assert redis["command"][1:] == ["/etc/flockmq/valkey.sh", "redis"]
        assert sentinel["command"][1:] == ["/etc/flockmq/valkey.sh", "sentinel"]
        for container in (redis, sentinel):
            env = {entry["name"]: entry.get("value") for entry in container["env"]}
            assert env["HOSTS"] == "demo-redis-0 demo-redis-1 demo-redis-2"
            assert {mount["name"] for mount in container["volumeMounts"]} == {"config", "secrets", "tls", "data", "tmp"}
            assert "memory" in container["resources"]["limits"]
        assert redis["startupProbe"]["periodSeconds"] * redis["startupProbe"]["failureThreshold"] >= 3600
        assert redis["lifecycle"]["preStop"]["exec"]["command"][-1] == "leave"
        assert f"\nPAUSE_S={pod['terminationGracePeriodSeconds']}\n" in config.SCRIPT, "the pod would outlive the pause"

    def test_a_drain_takes_one_at_a_time(self) -> None:
        budget = built(self.SPEC)[Ref("PodDisruptionBudget", "demo-redis")]["spec"]
        assert budget["maxUnavailable"] == 1
        assert Ref("PodDisruptionBudget", "demo-redis") not in built()

    def test_who_may_connect_to_it(self) -> None:
        rules = built(self.SPEC)[Ref("NetworkPolicy", "demo-redis")]["spec"]["ingress"]
        admitted = {rule["ports"][0]["port"]: components(rule["from"]) for rule in rules}
        assert admitted == {6379: ["core", "replicant", "report", "redis"], 26379: ["core", "replicant", "redis"]}

    def test_a_new_script_rolls_its_pods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = templates(self.SPEC)["redis"]["metadata"]["annotations"][CONFIG_DIGEST]
        monkeypatch.setattr(config, "SCRIPT", "# another")
        assert templates(self.SPEC)["redis"]["metadata"]["annotations"][CONFIG_DIGEST] != before


def test_redis_may_load_its_file_for_an_hour() -> None:
    probe = templates()["redis"]["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


@pytest.mark.parametrize(("when_deleted", "policy"), [(None, "Retain"), ("Retain", "Retain"), ("Delete", "Delete")])
def test_redis_volume_outlives_the_cluster_unless_told_otherwise(when_deleted: str | None, policy: str) -> None:
    storage = {"storage": {"whenDeleted": when_deleted}} if when_deleted else {}
    stateful_set = built({"redis": storage})[Ref("StatefulSet", "demo-redis")]
    assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == policy


@pytest.mark.parametrize(
    ("redis", "policy"),
    [
        ({}, "Retain"),
        ({"storage": {"whenDeleted": "Delete"}}, "Delete"),
        ({"external": {"url": "redis://r:6379/0"}, "storage": {"whenDeleted": "Delete"}}, "Retain"),
    ],
)
def test_core_volumes_stay_as_long_as_the_log_does(redis: Manifest, policy: str) -> None:
    stateful_set = built({"redis": redis})[Ref("StatefulSet", "demo-core")]
    assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == policy


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


def test_an_external_redis_makes_none_and_is_reached_with_its_secret() -> None:
    objects = built(EXTERNAL)
    assert not any(name.name == "demo-redis" for name in objects)
    assert tomllib.loads(config.files(context(EXTERNAL))["core.toml"])["redis"]["url"] == "redis://elsewhere:6379/0"
    for component in ("core", "replicant", "report"):
        volumes = {volume["name"]: volume for volume in templates(EXTERNAL)[component]["spec"]["volumes"]}
        sources = volumes["secrets"]["projected"]["sources"]
        assert {"secret": {"name": "pw", "items": [{"key": "k", "path": "redis-password"}]}} in sources


def test_the_report_has_a_password_of_its_own_and_not_the_cluster_key() -> None:
    report = json.dumps(templates()["report"])
    assert "report-password" in report
    assert "core-password" not in report
    assert "cluster-key" not in report


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ({}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"replicas": 3}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"tls": False}, "redis://report@demo-redis:6379/0"),
        ({"external": {"url": "redis://r:6379/2"}}, "redis://r:6379/2"),
        (
            {"external": {"url": "rediss://r", "username": "u", "caSecretRef": {"name": "ca"}}},
            f"rediss://u@r?{OURS}",
        ),
    ],
)
def test_the_report_reads_from_one_server(redis: Manifest, url: str) -> None:
    args = templates({"redis": redis})["report"]["spec"]["containers"][0]["args"]
    assert args[args.index("--redis-url") + 1] == url


def test_the_autoscaler_scales_the_mqtt_cluster_above_the_floor() -> None:
    spec = built({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}, floor=5)[
        Ref("HorizontalPodAutoscaler", "demo")
    ]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttCluster", "name": "demo"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (5, 9)


def test_further_metrics_and_behavior_are_passed_through() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "m"}}}
    autoscaling = {"maxReplicas": 9, "metrics": [metric], "behavior": {"scaleUp": {}}}
    spec = built({"autoscaling": autoscaling})[Ref("HorizontalPodAutoscaler", "demo")]["spec"]
    assert [item["type"] for item in spec["metrics"]] == ["Resource", "Pods"]
    assert spec["behavior"] == {"scaleUp": {}}


def admitted(policy: str, port: int, spec: Manifest | None = None) -> list[Manifest] | None:
    """Who may reach a port of the policy's pods: peers; [] everybody; None nobody."""
    for rule in built(spec)[Ref("NetworkPolicy", policy)]["spec"]["ingress"]:
        if port in [entry["port"] for entry in rule["ports"]]:
            return rule.get("from", [])
    return None


def components(peers: list[Manifest] | None) -> list[str]:
    return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers or ()]


def test_who_may_connect_to_what() -> None:
    assert admitted("demo-replicant", 1883) == []
    assert admitted("demo-core", 1883) is None
    assert (
        components(admitted("demo-core", 4370)) == components(admitted("demo-replicant", 4370)) == ["core", "replicant"]
    )
    assert components(admitted("demo-redis", 6379)) == ["core", "replicant", "report"]
    assert built()[Ref("NetworkPolicy", "demo-report")]["spec"]["ingress"] == []


PROMETHEUS: Manifest = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}


def test_management_is_for_the_operator_and_whom_the_spec_names() -> None:
    """A pod that calls itself Prometheus anywhere isn't let in."""
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "flockmq"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "flockmq-operator"}},
    }
    spec: Manifest = {"networkPolicy": {"managementFrom": [PROMETHEUS]}}
    for policy in ("demo-core", "demo-replicant"):
        assert admitted(policy, 18083) == [operator]
        assert admitted(policy, 18083, spec) == [operator, PROMETHEUS]


def reached(policy: str, spec: Manifest | None = None) -> dict[int, list[str]] | None:
    """Port → components of this cluster to which the policy's pods may connect; None: to anything."""
    rules = built(spec)[Ref("NetworkPolicy", policy)]["spec"]
    if "Egress" not in rules["policyTypes"]:
        assert "egress" not in rules
        return None
    own = [rule for rule in rules["egress"] if "to" in rule]
    return {entry["port"]: components(rule["to"]) for rule in own for entry in rule["ports"]}


def test_redis_and_the_report_connect_to_redis_alone() -> None:
    replicated: Manifest = {"redis": {"replicas": 3}}
    assert reached("demo-redis") == {}
    assert reached("demo-redis", replicated) == {6379: ["redis"], 26379: ["redis"]}
    assert reached("demo-report") == {6379: ["redis"]}
    assert reached("demo-report", EXTERNAL) is None


def test_nodes_connect_to_one_another_and_redis_once_the_spec_says_where_else() -> None:
    nowhere: Manifest = {"networkPolicy": {"egress": []}}
    assert reached("demo-core") is None
    for policy in ("demo-core", "demo-replicant"):
        assert reached(policy, nowhere) == {4370: ["core", "replicant"], 6379: ["redis"]}
    somewhere = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 6379}]}
    spec = EXTERNAL | {"networkPolicy": {"egress": [somewhere]}}
    for policy in ("demo-core", "demo-replicant", "demo-report"):
        assert built(spec)[Ref("NetworkPolicy", policy)]["spec"]["egress"][-1] == somewhere


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


LISTENERS = [
    {"name": "mqtt", "port": 1883, "nodePort": 31883},
    {"name": "wss", "type": "wss", "port": 443, "tls": {"secretName": "tls"}},
]


def test_each_listener_has_a_port_of_the_service_and_of_the_pod_and_is_let_in() -> None:
    objects = built({"service": {"type": "NodePort"}, "listeners": LISTENERS})
    assert objects[Ref("Service", "demo")]["spec"]["ports"] == [
        {"name": "mqtt", "port": 1883, "targetPort": "mqtt", "nodePort": 31883},
        {"name": "wss", "port": 443, "targetPort": "wss"},
    ]
    pod = objects[Ref("Deployment", "demo-replicant")]["spec"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert ports == {"mqtt": 1883, "wss": 443, "link": 4370, "management": 18083}
    policy = objects[Ref("NetworkPolicy", "demo-replicant")]["spec"]["ingress"]
    assert [port["port"] for port in policy[0]["ports"]] == [1883, 443]


def test_a_port_below_1024_needs_a_sysctl_that_the_restricted_standard_admits() -> None:
    pods = [templates({"listeners": listeners})["replicant"]["spec"] for listeners in (LISTENERS[:1], LISTENERS)]
    assert "sysctls" not in pods[0]["securityContext"]
    assert pods[1]["securityContext"]["sysctls"] == [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    assert list(restricted_violations(pods[1])) == []


def test_the_first_user_is_read_by_cores_alone() -> None:
    found = templates()
    assert [name for name in COMPONENTS if "demo-mqtt-user" in json.dumps(found[name])] == ["core"]


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ({}, True),
        ({"chain": [{"mechanism": "scram:built_in_database"}]}, True),
        ({"chain": [{"mechanism": "jwt"}]}, False),
        ({"chain": []}, False),
        ({"users": {"secretName": "mine"}}, False),
    ],
)
def test_a_first_user_is_made_where_nobody_else_names_users(spec: Manifest, made: bool) -> None:
    assert (Ref("Secret", "demo-mqtt-user") in built({"authentication": spec})) is made


def test_the_first_users_file_holds_its_password() -> None:
    data = {key: b64decode(value).decode() for key, value in built()[Ref("Secret", "demo-mqtt-user")]["data"].items()}
    assert data["username"] == "mqtt"
    assert data["users.csv"].splitlines() == ["user_id,password,is_superuser", f"mqtt,{data['password']},false"]


def test_probes_speak_tls_where_management_does() -> None:
    for spec, scheme in (({}, None), ({"management": {"tls": {"secretName": "cert"}}}, "HTTPS")):
        for component in ("core", "replicant"):
            container = templates(spec)[component]["spec"]["containers"][0]
            probes = [
                container[f"{name}Probe"]["httpGet"].get("scheme") for name in ("startup", "liveness", "readiness")
            ]
            assert probes == [scheme] * 3
