"""How far a StatefulSet or a Deployment is with what was asked of it."""

from flockmq_operator.manifest import Manifest


def rolled_out(live: Manifest, replicas: int) -> bool:
    """Whether `replicas` pods are ready and the controller has seen the newest spec."""
    status = live.get("status", {})
    seen = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return bool(seen and status.get("readyReplicas", 0) >= replicas)


def pod_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def progress(live: Manifest, replicas: int) -> str:
    return f"{live.get('status', {}).get('readyReplicas', 0)} of {replicas} ready"
