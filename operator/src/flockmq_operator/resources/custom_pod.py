"""What `spec.{cores,replicants,redis}.podTemplate` adds to a pod: merged strategically, as `kubectl patch` merges.

Maps are merged, null and `$patch: delete` remove a key, `$patch: replace` takes a map as it is. Elements of keyed lists
(containers and volumes by name, mounts by path, …) are merged by their key, other lists replaced. What the operator
needs can't be taken away: `refuse_what_is_taken` compares, whatever way it was said. No privilege is taken
(`pod_security`).
"""

from collections.abc import Iterable, Iterator
from posixpath import normpath

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.pod_security import CONFINED, WITHOUT_PRIVILEGES, privileges, unconfined
from flockmq_operator.spec import GROUP, PodTemplate, SpecError

ALLOWED = frozenset(
    {
        *("affinity", "containers", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets", "initContainers"),
        *("nodeSelector", "preemptionPolicy", "priorityClassName", "resourceClaims", "runtimeClassName"),
        *("schedulerName", "securityContext", "tolerations", "topologySpreadConstraints", "volumes"),
    }
)
"""The fields of a PodSpec that are taken."""
ELSEWHERE = {
    "terminationGracePeriodSeconds": "set spec.terminationGracePeriodSeconds",
    "serviceAccountName": "pods have an account without rights, and no token of it",
    "automountServiceAccountToken": "pods have no token of the API server",
    "replicas": "set replicas beside podTemplate",
}
OF_OUR_CONTAINERS = {
    "image": "set spec.image, or spec.redis.image",
    "imagePullPolicy": "set spec.imagePullPolicy",
    "resources": "set resources beside podTemplate",
    "envFrom": "name each variable in env",
}
CHANGEABLE = frozenset({"env", "volumeMounts", "securityContext"})
"""The fields of our containers that may be added to."""
SETTINGS = "FLOCKMQ_"
"""How variables begin that the broker takes before its file, `spec.config` with it."""
KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
    "resourceClaims": "name",
}
"""The lists whose elements are merged, and by what."""
PATCH = "$patch"
DELETE_AND_REPLACE = ("delete", "replace")


def customised(template: Manifest, said: PodTemplate, field: str) -> Manifest:
    """`template` with what the spec says at `field`. Raises SpecError."""
    if said == PodTemplate():
        return template
    for name in said.spec:
        if name not in ALLOWED:
            instead = ELSEWHERE.get(name, f"what may stand here: {', '.join(sorted(ALLOWED))}")
            raise SpecError(f"{field}.spec.{name} can't be set: {instead}")
    metadata = merged_metadata(template["metadata"], said, field)
    try:
        spec = merged_spec(template["spec"], said.spec, f"{field}.spec")
    except (AttributeError, KeyError, TypeError) as error:
        raise SpecError(f"{field}.spec has a text, a list or a map where a PodSpec has another: {error}") from None
    return {"metadata": metadata, "spec": spec}


def merged_spec(ours: Manifest, said: Manifest, field: str) -> Manifest:
    """Raises SpecError, and others where something has another shape than in a PodSpec."""
    spec = merged(ours, said, field)
    spec["securityContext"] = {**CONFINED, **spec.get("securityContext", {})}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [without_privileges(container, f"{field}.{kind}") for container in spec[kind]]
    refuse_what_is_taken(ours, spec, field)
    for where, instead in privileges(spec):
        raise SpecError(f"{field}.{where} can't be so: what may stand there: {instead}")
    return spec


def without_privileges(container: Manifest, field: str) -> Manifest:
    security = container.get("securityContext", {})
    return {**container, "securityContext": merged(WITHOUT_PRIVILEGES, security, f"{field}.securityContext")}


def merged_metadata(metadata: Manifest, said: PodTemplate, field: str) -> Manifest:
    found = dict(metadata)
    for kind, added in (("labels", said.metadata.labels), ("annotations", said.metadata.annotations)):
        own = metadata.get(kind, {})
        for key in added:
            if key.partition("/")[0] == GROUP or (kind == "labels" and key in own):
                raise SpecError(f"{field}.metadata.{kind}: {key} is the operator's: remove it")
        for key in unconfined(added):
            raise SpecError(f"{field}.metadata.{kind}: {key} may be runtime/default or localhost/PROFILE")
        if own or added:
            found[kind] = {**own, **added}
    return found


def merged(base: Manifest, said: Manifest, field: str) -> Manifest:
    """Raises SpecError."""
    directive = said.get(PATCH)
    if directive not in (None, *DELETE_AND_REPLACE):
        raise SpecError(f"{field}.{PATCH}: {directive}: write replace or delete")
    found = {} if directive == "replace" else dict(base)
    for key, value in said.items():
        if key == PATCH:
            continue
        here = f"{field}.{key}"
        if value is None or (isinstance(value, dict) and value.get(PATCH) == "delete"):
            found.pop(key, None)
        elif key in KEYS:
            if not isinstance(value, list):
                raise SpecError(f"{here} must be a list")
            found[key] = merged_list(found.get(key) or [], value, KEYS[key], here)
        elif isinstance(value, dict):
            below = found.get(key)
            found[key] = merged(below if isinstance(below, dict) else {}, value, here)
        else:
            found[key] = value
    return found


def merged_list(base: list[Manifest], said: list[Manifest], key: str, field: str) -> list[Manifest]:
    """The base's elements first."""
    found = {element[key]: element for element in base}
    seen = set()
    for element in said:
        name = element.get(key) if isinstance(element, dict) else None
        if not isinstance(name, str):
            raise SpecError(f"{field}: each element needs a text {key}, by which it is told from the others")
        if name in seen:
            raise SpecError(f"{field}[{name}] stands there twice: {key} tells elements from one another")
        seen.add(name)
        if element.get(PATCH) == "delete":
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name, {}), element, f"{field}[{name}]")
    return list(found.values())


# What the operator needs


def refuse_what_is_taken(ours: Manifest, spec: Manifest, field: str) -> None:
    """Raises SpecError."""
    for volume in ours.get("volumes", ()):
        if by_key(spec.get("volumes", ()), "name", volume["name"]) != volume:
            raise SpecError(f"{field}.volumes[{volume['name']}] is the operator's: give yours another name")
    for container in ours["containers"]:
        name = container["name"]
        here = f"{field}.containers[{name}]"
        found = by_key(spec.get("containers", ()), "name", name)
        if found is None:
            raise SpecError(f"{here} can't be removed: it is what the pod is for")
        refuse_changed_container(container, found, here)
    claimed = {mount["name"] for container in ours["containers"] for mount in container.get("volumeMounts", ())}
    for name in claimed - {volume["name"] for volume in ours.get("volumes", ())}:
        if by_key(spec.get("volumes", ()), "name", name):
            raise SpecError(f"{field}.volumes[{name}] is the name of the pod's own volume: give yours another one")
    for sysctl in ours["securityContext"].get("sysctls", ()):
        if by_key(spec.get("securityContext", {}).get("sysctls", ()), "name", sysctl["name"]) != sysctl:
            added = f"{{name: {sysctl['name']}, value: '{sysctl['value']}'}}"
            raise SpecError(f"{field}.securityContext.sysctls: add {added}: listeners on ports below 1024 need it")


def refuse_changed_container(ours: Manifest, found: Manifest, field: str) -> None:
    for key in (*ours, *found):
        if key not in CHANGEABLE and found.get(key) != ours.get(key):
            instead = OF_OUR_CONTAINERS.get(key, "the operator needs it as it is: remove it here")
            raise SpecError(f"{field}.{key} can't be set: {instead}")
    for entry in ours.get("env", ()):
        if by_key(found.get("env", ()), "name", entry["name"]) != entry:
            raise SpecError(f"{field}.env[{entry['name']}] is the operator's: remove it here")
    for entry in found.get("env", ()):
        if entry["name"].upper().startswith(SETTINGS) and entry not in ours.get("env", ()):
            raise SpecError(f"{field}.env[{entry['name']}] is a setting of the broker: write it in spec.config")
    for mount in ours.get("volumeMounts", ()):
        path = mount["mountPath"]
        if [other for other in found.get("volumeMounts", ()) if place(other) == path] != [mount]:
            raise SpecError(f"{field}.volumeMounts[{path}] is the operator's: mount yours elsewhere")


def place(mount: Manifest) -> str:
    """Where it is mounted, however that is written."""
    path: str = mount["mountPath"]
    return normpath("/" + path.lstrip("/"))


def by_key(elements: Iterable[Manifest], key: str, value: str) -> Manifest | None:
    return next((element for element in elements if element.get(key) == value), None)


def images_of(said: PodTemplate) -> Iterator[tuple[str, str]]:
    """(field below podTemplate, image) of the containers that are added."""
    for kind in ("containers", "initContainers"):
        containers = said.spec.get(kind)
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, dict) and isinstance(container.get("image"), str):
                yield f"spec.{kind}[{container.get('name')}].image", container["image"]
