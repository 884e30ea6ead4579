"""Pods as people need them: what is merged over ours, and what can't be taken away."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from flockmq_operator.resources import build
from flockmq_operator.resources.labels import SAFE_TO_EVICT
from flockmq_operator.resources.pod_security import CONFINED
from flockmq_operator.spec import SpecError
from unit.operator.schema import SCHEMA, violations, with_defaults
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, converge, running
from unit.operator.test_resources import templates
from unit.operator.world import context

PARTS = [("cores", "core"), ("replicants", "replicant"), ("redis", "redis")]
SIDECAR: Manifest = {"name": "mesh", "image": "broker:sidecar"}
UNPRIVILEGED: Manifest = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
"""What a container that is added gets."""


def pod(said: Manifest, part: str = "replicants", component: str = "replicant", **metadata: object) -> Manifest:
    spec: Manifest = {part: {"podTemplate": {"spec": said, "metadata": metadata}}}
    schema = SCHEMA["properties"]["spec"]
    assert list(violations(with_defaults(spec, schema), schema)) == []
    return templates(spec)[component]


def ours(template: Manifest) -> Manifest:
    container: Manifest = template["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(("part", "component"), PARTS)
def test_what_is_said_of_a_pod_is_there(part: str, component: str) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    said: Manifest = {
        "affinity": affinity,
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "nodeSelector": {"disk": "fast"},
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "imagePullSecrets": [{"name": "registry"}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "initContainers": [SIDECAR | UNPRIVILEGED | {"name": "first"}],
    }
    template = pod(said, part, component, labels={"team": "iot"}, annotations={"a.example/b": "c"})
    assert {key: template["spec"][key] for key in said} == said
    assert template["metadata"]["labels"]["team"] == "iot"
    assert template["metadata"]["annotations"]["a.example/b"] == "c"
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == component


def test_what_is_not_said_stays() -> None:
    plain, said = templates()["replicant"], pod({"nodeSelector": {"disk": "fast"}})
    said["spec"].pop("nodeSelector")
    assert said == plain


def test_containers_volumes_and_variables_are_merged_by_name() -> None:
    template = pod(
        {
            "containers": [
                SIDECAR,
                {
                    "name": "flockmq",
                    "env": [{"name": "TZ", "value": "UTC"}],
                    "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
                    "securityContext": {"readOnlyRootFilesystem": False},
                },
            ],
            "volumes": [{"name": "mine", "configMap": {"name": "mine"}}],
        }
    )
    plain = templates()["replicant"]
    assert [container["name"] for container in template["spec"]["containers"]] == ["flockmq", "mesh"]
    assert ours(template)["env"] == [*ours(plain)["env"], {"name": "TZ", "value": "UTC"}]
    assert ours(template)["volumeMounts"][-1] == {"name": "mine", "mountPath": "/mine"}
    assert ours(template)["securityContext"] == ours(plain)["securityContext"] | {"readOnlyRootFilesystem": False}
    assert template["spec"]["volumes"][:-1] == plain["spec"]["volumes"]


def test_a_security_context_can_be_given_up_where_the_platform_chooses_the_user() -> None:
    said: Manifest = {"securityContext": {"$patch": "replace", "runAsNonRoot": True}}
    assert pod(said)["spec"]["securityContext"] == {"runAsNonRoot": True, **CONFINED}
    without = pod({"securityContext": {"runAsUser": None}})["spec"]["securityContext"]
    assert "runAsUser" not in without
    assert without["fsGroup"] == 10001


def test_a_spread_over_zones_can_be_made_strict() -> None:
    zone = "topology.kubernetes.io/zone"
    said: Manifest = {"topologySpreadConstraints": [{"topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule"}]}
    found = pod(said)["spec"]["topologySpreadConstraints"]
    assert [(entry["topologyKey"], entry["whenUnsatisfiable"]) for entry in found] == [
        (zone, "DoNotSchedule"),
        ("kubernetes.io/hostname", "ScheduleAnyway"),
    ]
    assert all("labelSelector" in entry for entry in found)


def container(**fields: object) -> Manifest:
    return {"containers": [{"name": "flockmq", **fields}]}


@pytest.mark.parametrize(
    ("said", "field", "mend"),
    [
        (container(image="other"), "containers[flockmq].image", "set spec.image"),
        (container(resources={}), "", ""),  # an empty map takes nothing away
        (container(resources={"limits": {"memory": "9Gi"}}), "containers[flockmq].resources", "set resources beside"),
        (container(args=["sh"]), "containers[flockmq].args", "remove it here"),
        (container(ports=[{"containerPort": 1}]), "containers[flockmq].ports", "remove it here"),
        (container(readinessProbe=None), "containers[flockmq].readinessProbe", "remove it here"),
        (container(lifecycle={"preStop": {}}), "containers[flockmq].lifecycle", "remove it here"),
        (container(env=[{"name": "FLOCKMQ_ROLE", "value": "core"}]), "env[FLOCKMQ_ROLE]", "remove it here"),
        (container(env=[{"name": "FLOCKMQ_ROLE", "$patch": "delete"}]), "env[FLOCKMQ_ROLE]", "remove it here"),
        (container(volumeMounts=[{"mountPath": "/tmp", "name": "x"}]), "volumeMounts[/tmp]", "mount yours elsewhere"),
        (container(volumeMounts=[{"mountPath": "//tmp/", "name": "x"}]), "volumeMounts[/tmp]", "mount yours elsewhere"),
        (container(volumeMounts=None), "volumeMounts[", "mount yours elsewhere"),
        (container(env="x"), "containers[flockmq].env", "must be a list"),
        (container(envFrom=[{"configMapRef": {"name": "x"}}]), "containers[flockmq].envFrom", "in env"),
        (container(env=[{"name": "flockmq_log__level", "value": "x"}]), "env[flockmq_log__level]", "in spec.config"),
        ({"containers": [{"name": "flockmq", "$patch": "delete"}]}, "containers[flockmq]", "it is what the pod is for"),
        ({"containers": [{"image": "x"}]}, "containers", "each element needs a text name"),
        ({"containers": [SIDECAR, SIDECAR]}, "containers[mesh]", "stands there twice"),
        ({"volumes": [{"name": "secrets", "emptyDir": {}}]}, "volumes[secrets]", "give yours another name"),
        ({"containers": None}, "containers[flockmq]", "it is what the pod is for"),
        ({"serviceAccountName": "mine"}, "serviceAccountName", "no token of it"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken", "no token"),
        ({"hostNetwork": True}, "hostNetwork", "what may stand here: affinity, "),
        ({"terminationGracePeriodSeconds": 1}, "terminationGracePeriodSeconds", "set spec.terminationGracePeriod"),
        ({"nodeSelector": {"$patch": "merge"}}, "nodeSelector.$patch", "write replace or delete"),
    ],
)
def test_what_the_operator_needs_cannot_be_taken_away(said: Manifest, field: str, mend: str) -> None:
    if mend == "":
        assert pod(said) == templates()["replicant"]
        return
    with pytest.raises(SpecError, match=r"^spec\.replicants\.podTemplate\.spec\.") as refusal:
        pod(said)
    assert field in str(refusal.value)
    assert mend in str(refusal.value)


def volume(**source: object) -> Manifest:
    return {"volumes": [{"name": "v", **source}]}


def sidecar(**security: object) -> Manifest:
    return {"containers": [SIDECAR | {"securityContext": security}]}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (volume(hostPath={"path": "/"}), "volumes[v].hostPath"),
        (volume(image={"reference": "evil.example/x"}), "volumes[v].image"),
        (volume(nfs={"server": "x", "path": "/"}), "volumes[v].nfs"),
        (
            volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
            "projected.sources.serviceAccountToken",
        ),
        (sidecar(privileged=True), "containers[mesh].securityContext.privileged"),
        (sidecar(allowPrivilegeEscalation=True), "containers[mesh].securityContext.allowPrivilegeEscalation"),
        (sidecar(capabilities={"add": ["SYS_ADMIN"]}), "containers[mesh].securityContext.capabilities.add"),
        (sidecar(capabilities={"drop": []}), "containers[mesh].securityContext.capabilities.drop"),
        (sidecar(runAsUser=0), "containers[mesh].securityContext.runAsUser"),
        (sidecar(runAsNonRoot=False), "containers[mesh].securityContext.runAsNonRoot"),
        (sidecar(procMount="Unmasked"), "containers[mesh].securityContext.procMount"),
        (sidecar(seccompProfile={"type": "Unconfined"}), "containers[mesh].securityContext.seccompProfile"),
        (sidecar(appArmorProfile={"type": "Unconfined"}), "containers[mesh].securityContext.appArmorProfile"),
        (sidecar(seLinuxOptions={"type": "spc_t"}), "containers[mesh].securityContext.seLinuxOptions"),
        (sidecar(seLinuxOptions={"role": "x"}), "containers[mesh].securityContext.seLinuxOptions"),
        (sidecar(windowsOptions={"hostProcess": True}), "containers[mesh].securityContext.windowsOptions"),
        (container(securityContext={"runAsUser": 0}), "containers[flockmq].securityContext.runAsUser"),
        ({"initContainers": [SIDECAR | {"securityContext": {"privileged": True}}]}, "initContainers[mesh]"),
        ({"containers": [SIDECAR | {"ports": [{"containerPort": 1, "hostPort": 1}]}]}, "containers[mesh].ports"),
        ({"containers": [SIDECAR | {"livenessProbe": {"httpGet": {"host": "x"}}}]}, "containers[mesh]: host"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
        ({"securityContext": None}, "containers[flockmq].securityContext.runAsNonRoot"),
        ({"securityContext": {"$patch": "delete"}}, "containers[flockmq].securityContext.runAsNonRoot"),
        ({"priorityClassName": "system-node-critical"}, "priorityClassName"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "securityContext.seccompProfile"),
        ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls[kernel.msgmax]"),
    ],
)
def test_no_privilege_is_taken(said: Manifest, field: str) -> None:
    with pytest.raises(SpecError, match=r"^spec\.replicants\.podTemplate\.spec\..*: what may stand there: ") as refusal:
        pod(said)
    assert field in str(refusal.value)


def test_what_the_restricted_standard_admits_may_be_said() -> None:
    security: Manifest = {
        "runAsUser": 7,
        "seLinuxOptions": {"level": "s0"},
        "capabilities": {"add": ["NET_BIND_SERVICE"]},
    }
    said = {**sidecar(**security), **volume(projected={"sources": [{"secret": {"name": "mine"}}]})}
    found = pod(said)["spec"]["containers"][1]["securityContext"]
    both = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    assert found == security | {"allowPrivilegeEscalation": False, "capabilities": both}


@pytest.mark.parametrize("said", [{"$patch": "replace", "runAsNonRoot": True}, {"seccompProfile": None}])
def test_a_pod_without_a_seccomp_profile_is_given_one(said: Manifest) -> None:
    assert pod({"securityContext": said})["spec"]["securityContext"].items() >= CONFINED.items()


def test_an_annotation_takes_no_profile_away() -> None:
    with pytest.raises(SpecError, match="may be runtime/default"):
        pod({}, annotations={"container.apparmor.security.beta.kubernetes.io/flockmq": "unconfined"})


@pytest.mark.parametrize(
    "said",
    [
        container(securityContext="x"),
        sidecar(capabilities="x"),
        volume(configMap="x"),
        volume(configMap={"name": {}}),
        volume(projected="x"),
        volume(projected={"sources": "x"}),
        volume(projected={"sources": [None]}),
        {"securityContext": "x"},
        {"securityContext": {"sysctls": [{}]}},
        {"containers": [SIDECAR | {"ports": ["x"]}]},
    ],
)
def test_what_has_another_shape_is_an_error_of_its_part(said: Manifest) -> None:
    with pytest.raises(SpecError, match=r"^spec\.replicants\.podTemplate\.spec"):
        pod(said)


def test_ports_below_1024_stay_open() -> None:
    listeners = [{"name": "mqtt", "port": 883}]
    openshift: Manifest = {"$patch": "replace", "runAsNonRoot": True}
    spec: Manifest = {"listeners": listeners, "replicants": {"podTemplate": {"spec": {"securityContext": openshift}}}}
    with pytest.raises(
        SpecError, match=r"securityContext\.sysctls: add \{name: net\.ipv4\.ip_unprivileged_port_start, "
    ):
        templates(spec)
    openshift["sysctls"] = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    found = templates(spec)["replicant"]["spec"]["securityContext"]
    assert found.keys() == {"runAsNonRoot", "sysctls", "seccompProfile"}


def test_the_volume_of_a_claim_cannot_be_taken_either() -> None:
    with pytest.raises(
        SpecError, match=r"spec\.cores\.podTemplate\.spec\.volumes\[data\] is the name of the pod's own"
    ):
        pod({"volumes": [{"name": "data", "emptyDir": {}}]}, "cores", "core")


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app.kubernetes.io/name": "x"}},
        {"labels": {"flockmq.io/takes-clients": "false"}},
        {"annotations": {"flockmq.io/config": "x"}},
    ],
)
def test_the_operators_own_labels_and_annotations_cannot_be_changed(metadata: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="is the operator's: remove it"):
        pod({}, **metadata)


async def test_images_of_sidecars_come_from_where_images_come_from() -> None:
    world = await running()
    sidecar = {"name": "mesh", "image": "evil.example/mesh:1"}
    plan = await world.plan(context({"cores": {"podTemplate": {"spec": {"containers": [sidecar]}}}}))
    (problem,) = plan.problems
    assert (problem.reason, problem.blocks) == ("ImageRefused", {"core"})
    assert problem.message.startswith("spec.cores.podTemplate.spec.containers[mesh].image: evil.example/mesh:1")


@pytest.mark.parametrize(("part", "name"), [("cores", CORES), ("replicants", REPLICANTS), ("redis", REDIS)])
async def test_it_rolls_the_pods_of_its_part_and_no_others(part: str, name: Ref) -> None:
    world = await running()
    before = {kind: world.objects[kind]["spec"]["template"] for kind in (CORES, REPLICANTS, REDIS)}
    at = context({part: {"podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}}}})
    await converge(world, at)
    assert {kind for kind in before if world.objects[kind]["spec"]["template"] != before[kind]} == {name}
    assert await world.plan(at) == Plan()


async def test_a_config_map_of_somebody_else_is_no_reason_to_roll(monkeypatch: pytest.MonkeyPatch) -> None:
    said: Manifest = {"cores": {"podTemplate": {"spec": {"volumes": [{"name": "m", "configMap": {"name": "mine"}}]}}}}
    world = await running(said)
    monkeypatch.setattr("flockmq_operator.resources.node_config.REDIS_WAIT_S", 5)
    assert await world.plan(context(said)) == Plan(update_pending=True)


@pytest.mark.parametrize(("replicas", "safe"), [(1, "false"), (3, "true")])
def test_an_autoscaler_of_kubernetes_nodes_may_move_what_is_not_alone(replicas: int, safe: str) -> None:
    found = templates({"redis": {"replicas": replicas}})
    assert {name: found[name]["metadata"]["annotations"][SAFE_TO_EVICT] for name in ("core", "replicant", "redis")} == {
        "core": "true",
        "replicant": "true",
        "redis": safe,
    }
    assert pod({}, annotations={SAFE_TO_EVICT: "false"})["metadata"]["annotations"][SAFE_TO_EVICT] == "false"


def service(said: Manifest) -> Manifest:
    found: dict[Ref, Manifest] = {ref(manifest): manifest for manifest in build(context({"service": said}))}
    spec: Manifest = found[Ref("Service", "demo")]["spec"]
    return spec


def test_the_service_is_as_the_spec_says() -> None:
    said: Manifest = {
        "type": "LoadBalancer",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "loadBalancerClass": "example.com/nlb",
        "externalTrafficPolicy": "Local",
        "ipFamilies": ["IPv6", "IPv4"],
        "ipFamilyPolicy": "PreferDualStack",
    }
    assert said.items() <= service(said).items()
    assert service({}).keys() == {"type", "selector", "ports"}


async def test_while_it_is_paused_the_operator_only_reports() -> None:
    world = await running()
    assert (await world.plan(context({"pause": True}))).behind is False
    spec: Manifest = {"pause": True, "replicants": {"replicas": 5}, "mqtt": {"maxInflight": 7}}
    plan = await world.plan(context(spec))
    assert not plan.changes
    assert plan.events == ()
    assert plan.behind
    assert "Deployment demo-replicant" in plan.paused
    del spec["pause"]
    assert (await world.plan(context(spec))).changes


class TestNoReplicants:
    NONE: Manifest = {"replicants": {"replicas": 0}}  # noqa: RUF012 (never changed)

    def test_cores_take_clients(self) -> None:
        listeners = [
            {"name": "mqtt", "port": 883},
            {"name": "mqtts", "type": "ssl", "port": 8883, "tls": {"secretName": "tls"}},
        ]
        spec = {**self.NONE, "listeners": listeners}
        objects = {ref(manifest): manifest for manifest in build(context(spec))}
        core = templates(spec)["core"]
        assert [port["containerPort"] for port in ours(core)["ports"]] == [883, 8883, 4370, 18083]
        assert core["spec"]["securityContext"]["sysctls"]
        assert "tls/mqtts/tls.crt" in str(core["spec"]["volumes"])
        assert objects[Ref("Service", "demo")]["spec"]["selector"]["app.kubernetes.io/component"] == "core"
        assert objects[REPLICANTS]["spec"]["replicas"] == 0
        ports = objects[Ref("NetworkPolicy", "demo-core")]["spec"]["ingress"][0]["ports"]
        assert [entry["port"] for entry in ports] == [883, 8883]

    async def steps(self, before: Manifest, after: Manifest) -> Iterator[tuple[str, int, set[str]]]:
        """To whose pods the Service leads, how many replicants there are, and whose template changes; step by step."""
        world = await running(before)
        found = []
        for _ in range(12):
            plan = await world.plan(context(after))
            for manifest in plan.apply:
                await world.apply(manifest)
            for live in plan.delete:
                await world.delete(live)
            selector = world.objects[Ref("Service", "demo")]["spec"]["selector"]["app.kubernetes.io/component"]
            found.append((selector, world.objects[REPLICANTS]["spec"]["replicas"], set(plan.rolls)))
            world.settle()
        assert await world.plan(context(after)) == Plan()
        return iter(found)

    async def test_replicants_go_when_all_cores_take_clients(self) -> None:
        found = list(await self.steps({}, self.NONE))
        assert found[0] == ("replicant", 2, {"core"})
        assert [step[:2] for step in found[1:4]] == [("replicant", 2)] * 3, "while cores are restarted"
        assert found[-1][:2] == ("core", 0)

    async def test_broken_cores_are_mended_before_replicants_take_clients(self) -> None:
        world = await running(self.NONE)
        for core in world.pods("core"):
            core["status"]["conditions"][0] |= {"status": "False", "lastTransitionTime": world.now.isoformat()}
        world.objects[CORES]["status"]["readyReplicas"] = 0
        mended = context({"mqtt": {"maxInflight": 7}})
        assert "core" not in (await world.plan(mended)).rolls, "they may just be starting"
        world.now += timedelta(minutes=2)
        assert (await world.plan(mended)).rolls == {"core"}

    async def test_cores_take_clients_until_all_replicants_do(self) -> None:
        found = list(await self.steps(self.NONE, {}))
        assert found[0] == ("core", 2, set())
        assert found[1][0] == "replicant"
        assert [step[2] for step in found if step[2]] == [{"core"}]
