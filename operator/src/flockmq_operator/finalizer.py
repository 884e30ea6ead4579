"""The finalizer that holds an object until what was done for it in a cluster is undone."""

from flockmq_operator.kube import Kube, Refused
from flockmq_operator.manifest import Manifest


async def with_finalizer(kube: Kube, body: Manifest, finalizer: str) -> Manifest:
    """The object as it is then. Raises Refused where it changed meanwhile."""
    return await _with_finalizers(kube, body, [*body["metadata"].get("finalizers", ()), finalizer])


async def without_finalizer(kube: Kube, body: Manifest, finalizer: str) -> None:
    """Gone already is fine. Raises Refused where it changed meanwhile."""
    rest = [name for name in body["metadata"].get("finalizers", ()) if name != finalizer]
    try:
        await _with_finalizers(kube, body, rest)
    except Refused as refused:
        if refused.status != 404:
            raise


async def _with_finalizers(kube: Kube, body: Manifest, finalizers: list[str]) -> Manifest:
    keys = ("name", "namespace", "uid", "resourceVersion")
    metadata = {key: body["metadata"][key] for key in keys if key in body["metadata"]}
    return await kube.patch(
        {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {**metadata, "finalizers": finalizers}}
    )
