"""How the operator gets to a cluster's management API: by one of its ready cores, by pod and not by name, since a core
that isn't ready may not have read the log yet. It is the first ready one each time, so that a pass sees what the one
before it wrote."""

from base64 import b64decode
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from flockmq_operator.kube import Kube
from flockmq_operator.management_api import Access, NodeRefuses
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import MANAGEMENT_PORT, Context
from flockmq_operator.resources.labels import MANAGED_BY, MANAGER, selector
from flockmq_operator.settings import Settings
from flockmq_operator.spec import KIND, SpecError, decode
from flockmq_operator.status.workload import ordinal, pod_there

NOT_READY = "ClusterNotReady"


class Absent(NamedTuple):
    """Why nothing can be done in the cluster now: a condition's reason and sentence."""

    reason: str
    message: str
    is_gone: bool = False
    """Whether there is no cluster any more in which something could be left."""


async def find_access(kube: Kube, settings: Settings, namespace: str, cluster: str) -> Access | Absent:
    body = await kube.get(KIND, namespace, cluster)
    what = f"MqttCluster {cluster} in namespace {namespace}"
    if body is None:
        return Absent("ClusterMissing", f"there is no {what}: create it", is_gone=True)
    if "deletionTimestamp" in body["metadata"]:
        return Absent("ClusterMissing", f"{what} is being deleted", is_gone=True)
    try:
        context = Context(decode(body), settings)
    except SpecError:
        return Absent(NOT_READY, f"the spec of {what} must be mended first: see its condition Stalled")
    if context.spec.pause:
        return Absent("ClusterPaused", f"{what} has spec.pause: nothing is done in it until that ends")
    pods = await kube.list("Pod", namespace, {**selector(context, "core"), MANAGED_BY: MANAGER})
    ready = [pod for pod in pods if pod_there(pod) and pod["status"].get("podIP")]
    if not ready:
        return Absent(NOT_READY, f"no core of {what} is ready: see its conditions")
    secret = await kube.get("Secret", namespace, context.api_key)
    key = _value(secret, "key").decode(errors="replace").strip()
    if not key or not key.isascii() or not key.isprintable():
        return Absent(NOT_READY, f"Secret {context.api_key} in namespace {namespace} holds no API key")
    fingerprint = None
    if tls := context.spec.management.tls:
        fingerprint = fingerprint_of(_value(await kube.get("Secret", namespace, tls.secret_name), "tls.crt"))
        if fingerprint is None:
            return Absent(
                NOT_READY, f"Secret {tls.secret_name} in namespace {namespace} holds no certificate in tls.crt"
            )
    return Access(url_of(min(ready, key=ordinal)["status"]["podIP"], with_tls=bool(fingerprint)), key, fingerprint)


def refused_key(cluster: str, error: NodeRefuses) -> str:
    sentence = f"MqttCluster {cluster} refuses the key in Secret {cluster}-api-key: {error}"
    return f"{sentence} (pods get a changed one a minute later)"


def url_of(address: str, *, with_tls: bool) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{'https' if with_tls else 'http'}://{host}:{MANAGEMENT_PORT}"


def fingerprint_of(chain: bytes) -> bytes | None:
    """SHA-256 of the first certificate in it; None: there is none."""
    try:
        return x509.load_pem_x509_certificate(chain).fingerprint(hashes.SHA256())
    except ValueError:
        return None


def _value(secret: Manifest | None, key: str) -> bytes:
    return b64decode(((secret or {}).get("data") or {}).get(key, ""))
