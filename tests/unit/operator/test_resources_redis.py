"""Redis: its passwords, TLS, replicas, volumes, and an external one."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest

from flockmq_operator.certificates import REDIS_PODS_MAX, of_redis
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.resources import config
from flockmq_operator.resources.labels import CONFIG_DIGEST
from flockmq_operator.resources.redis_users import CORE_RULES, REPLICANT_RULES, SENTINEL_RULES
from flockmq_operator.spec import SpecError
from unit.operator.built import EXTERNAL, built, components, restricted_violations, templates
from unit.operator.schema import ROOT, SCHEMA
from unit.operator.world import context

IN_THE_CLEAR: Manifest = {"redis": {"tls": False}}


def test_redis_keeps_what_is_acknowledged_within_60_percent_of_its_memory() -> None:
    conf = config.files(context({"redis": {"resources": {"limits": {"memory": "1000Mi"}}}}))["valkey.conf"].splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction", "dir /data"} <= set(conf)
    assert f"maxmemory {600 * 1024 * 1024}" in conf


@pytest.mark.parametrize("limit", ["0", "500m", "31Mi"])
def test_a_limit_of_which_redis_would_have_no_bound_is_refused(limit: str) -> None:
    with pytest.raises(SpecError, match=f"redis.resources.limits.memory is {limit}, .* needs 32Mi at least"):
        built({"redis": {"resources": {"limits": {"memory": limit}}}})


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
        assert admitted == {
            6379: ["core", "replicant", "report", "redis"],
            26379: ["core", "replicant", "report", "redis"],
        }

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


def test_an_external_redis_makes_none_and_is_reached_with_its_secret() -> None:
    objects = built(EXTERNAL)
    assert not any(name.name == "demo-redis" for name in objects)
    assert tomllib.loads(config.files(context(EXTERNAL))["core.toml"])["redis"]["url"] == "redis://elsewhere:6379/0"
    for component in ("core", "replicant", "report"):
        volumes = {volume["name"]: volume for volume in templates(EXTERNAL)[component]["spec"]["volumes"]}
        sources = volumes["secrets"]["projected"]["sources"]
        assert {"secret": {"name": "pw", "items": [{"key": "k", "path": "redis-password"}]}} in sources
