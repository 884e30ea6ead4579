"""What Kubernetes' Pod Security Standard "restricted" refuses of a PodSpec, and tokens of the API server. Pure.

Who may write a MqttCluster needn't be allowed to make pods, so pods get no privilege by it. A field that the standard
wants is given to a pod or a container that lacks it, but for `runAsNonRoot`, which has to be said.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest

WITHOUT_PRIVILEGES: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What each container's securityContext has."""
CONFINED: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
"""What the pod's securityContext has."""
OF_KUBERNETES = "system-"
"""How the priority classes begin that are Kubernetes' own: their pods may end any others."""
VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
SOURCES = frozenset({"clusterTrustBundle", "configMap", "downwardAPI", "secret"})
"""Of a projected volume. No serviceAccountToken: that is a right."""
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_syncookies",
    }
)
SELINUX_TYPES = frozenset({"container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
PROFILES = frozenset({"RuntimeDefault", "Localhost"})
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Annotations with a container's profile, for older Kubernetes."""


def privileges(spec: Manifest) -> Iterator[tuple[str, str]]:
    """(the field, what may stand there) of each."""
    pod = spec.get("securityContext", {})
    yield from of_any("securityContext", pod)
    for sysctl in pod.get("sysctls", ()):
        if sysctl["name"] not in SYSCTLS:
            yield f"securityContext.sysctls[{sysctl['name']}]", ", ".join(sorted(SYSCTLS))
    if spec.get("priorityClassName", "").startswith(OF_KUBERNETES):
        yield "priorityClassName", f"a class whose name doesn't begin with {OF_KUBERNETES}"
    for volume in spec.get("volumes", ()):
        yield from of_volume(volume)
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind, ()):
            yield from of_container(f"{kind}[{container['name']}]", container, pod)


def of_volume(volume: Manifest) -> Iterator[tuple[str, str]]:
    where = f"volumes[{volume['name']}]"
    parts = {key: part for key, part in volume.items() if key != "name"}
    for kind in parts.keys() - VOLUMES:
        yield f"{where}.{kind}", ", ".join(sorted(VOLUMES))
    sources = volume.get("projected", {}).get("sources", ())
    for kind in {kind for source in sources for kind in source} - SOURCES:
        yield f"{where}.projected.sources.{kind}", ", ".join(sorted(SOURCES))
    for part in [*parts.values(), *(part for source in sources for part in source.values())]:
        if not all(isinstance(part.get(key, ""), str) for key in ("name", "claimName", "secretName")):
            yield where, "names that are texts"


def of_any(where: str, security: Manifest) -> Iterator[tuple[str, str]]:
    """Of a pod's securityContext, or a container's."""
    if security.get("runAsUser") == 0:
        yield f"{where}.runAsUser", "another user than 0"
    for kind in ("seccompProfile", "appArmorProfile"):
        if kind in security and security[kind].get("type") not in PROFILES:
            yield f"{where}.{kind}.type", "RuntimeDefault or Localhost"
    selinux = security.get("seLinuxOptions", {})
    if selinux.keys() & {"user", "role"} or selinux.get("type", "container_t") not in SELINUX_TYPES:
        yield f"{where}.seLinuxOptions", f"level, and as type {', '.join(sorted(SELINUX_TYPES))}"
    if "windowsOptions" in security:
        yield f"{where}.windowsOptions", "nothing: pods run on Linux"


def of_container(where: str, container: Manifest, pod: Manifest) -> Iterator[tuple[str, str]]:
    security = container["securityContext"]
    here = f"{where}.securityContext"
    yield from of_any(here, security)
    if security.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{here}.runAsNonRoot", "true, there or in the pod's securityContext"
    if security["allowPrivilegeEscalation"] is not False:
        yield f"{here}.allowPrivilegeEscalation", "false"
    if security.get("privileged"):
        yield f"{here}.privileged", "false"
    if security.get("procMount", "Default") != "Default":
        yield f"{here}.procMount", "Default"
    if "ALL" not in security["capabilities"].get("drop", ()):
        yield f"{here}.capabilities.drop", "ALL"
    if set(security["capabilities"].get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{here}.capabilities.add", "NET_BIND_SERVICE"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield f"{where}.ports", "ports without hostPort"
    probes = [container.get(f"{kind}Probe", {}) for kind in ("startup", "liveness", "readiness")]
    hooks = [container.get("lifecycle", {}).get(kind, {}) for kind in ("postStart", "preStop")]
    if any(action.get(kind, {}).get("host") for action in (*probes, *hooks) for kind in ("httpGet", "tcpSocket")):
        yield f"{where}: host of a probe or a hook", "none: it is the pod"


def unconfined(annotations: dict[str, str]) -> Iterator[str]:
    """Annotations that take a container's AppArmor profile away."""
    for key, value in annotations.items():
        if key.startswith(APPARMOR) and value != "runtime/default" and not value.startswith("localhost/"):
            yield key
