"""Kubernetes objects as plain JSON: the one place where their loose shape is admitted."""

from typing import Any, NamedTuple

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON. What it may hold is Kubernetes' API reference's to say."""


class Ref(NamedTuple):
    """Names an object within the namespace of its MqttCluster."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def ref(manifest: Manifest) -> Ref:
    return Ref(manifest["kind"], manifest["metadata"]["name"])


def annotation(manifest: Manifest, key: str) -> str | None:
    value: str | None = (manifest["metadata"].get("annotations") or {}).get(key)
    return value
