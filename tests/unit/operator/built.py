"""The manifests that builders make of a spec."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.resources import build
from unit.operator.world import context

EXTERNAL = {"redis": {"external": {"url": "redis://elsewhere:6379/0", "passwordSecretRef": {"name": "pw", "key": "k"}}}}
COMPONENTS = ("core", "replicant", "redis", "report")


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


def admitted(policy: str, port: int, spec: Manifest | None = None) -> list[Manifest] | None:
    """Who may reach a port of the policy's pods: peers; [] everybody; None nobody."""
    for rule in built(spec)[Ref("NetworkPolicy", policy)]["spec"]["ingress"]:
        if port in [entry["port"] for entry in rule["ports"]]:
            return rule.get("from", [])
    return None


def components(peers: list[Manifest] | None) -> list[str]:
    return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers or ()]
