"""Which Secrets and claims change: names alone, for a watch by metadata never brings what is in them here.

All of a namespace are watched, since a spec may name any. What changed while the watch wasn't up is never told; so
`begun` is called whenever a watch begins anew, which it tries every RETRY_MAX_S: anything may have changed.
"""

import asyncio
import logging
from collections.abc import Callable

from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.manifest import Ref
from flockmq_operator.passes import RESYNC_S

log = logging.getLogger(__name__)

NAMED_KINDS = ("Secret", "PersistentVolumeClaim")
RETRY_MIN_S, RETRY_MAX_S = 1.0, RESYNC_S
Changed = Callable[[str, Ref], None]
"""Called with the namespace of an object, and the object."""
Begun = Callable[[str | None], None]
"""Called with the namespace; None: all."""


async def watch_names(kube: Kube, kind: str, namespace: str | None, changed: Changed, begun: Begun) -> None:
    """For ever; `namespace` None: of all."""
    retry_s = RETRY_MIN_S
    while True:
        try:
            version = await kube.newest_version(kind, namespace)
            begun(namespace)
            while version:
                version = await _watch(kube, kind, namespace, version, changed)
                retry_s = RETRY_MIN_S
                await asyncio.sleep(RETRY_MIN_S)  # one that always ends at once is no busy loop
        except (Refused, Unreachable, KeyError) as error:
            where = f"namespace {namespace}" if namespace else "all namespaces"
            log.warning("%ss of %s can't be watched; trying again in %.0f s: %s", kind, where, retry_s, error)
        await asyncio.sleep(retry_s)
        retry_s = min(retry_s * 2, RETRY_MAX_S)


async def _watch(kube: Kube, kind: str, namespace: str | None, version: str, changed: Changed) -> str:
    """From where to watch next; empty: from now on, since it can't be known."""
    async for event in kube.watch(kind, namespace, version):
        if event["type"] == "ERROR":
            return ""
        metadata = event["object"]["metadata"]
        version = metadata["resourceVersion"]
        if event["type"] != "BOOKMARK":
            changed(metadata["namespace"], Ref(kind, metadata["name"]))
    return version
