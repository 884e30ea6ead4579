"""Which Secrets change: names alone, for a watch by metadata never brings what is in them here.

A change that is missed, while the watch isn't up, costs no more than the passes' RESYNC_S.
"""

import asyncio
import logging
from collections.abc import Callable

from flockmq_operator.kube import Kube, Refused, Unreachable

log = logging.getLogger(__name__)

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
Changed = Callable[[str, str], None]
"""Called with namespace and name of a Secret."""


async def watch_secrets(kube: Kube, namespace: str | None, changed: Changed) -> None:
    """For ever; `namespace` None: of all."""
    retry_s = RETRY_MIN_S
    while True:
        try:
            version = await kube.newest_version("Secret", namespace)
            while version:
                version = await _watch(kube, namespace, version, changed)
                retry_s = RETRY_MIN_S
                await asyncio.sleep(RETRY_MIN_S)  # one that always ends at once is no busy loop
        except (Refused, Unreachable, KeyError) as error:
            where = f"namespace {namespace}" if namespace else "all namespaces"
            log.warning("Secrets of %s can't be watched; trying again in %.0f s: %s", where, retry_s, error)
        await asyncio.sleep(retry_s)
        retry_s = min(retry_s * 2, RETRY_MAX_S)


async def _watch(kube: Kube, namespace: str | None, version: str, changed: Changed) -> str:
    """From where to watch next; empty: from now on, since it can't be known."""
    async for event in kube.watch("Secret", namespace, version):
        if event["type"] == "ERROR":
            return ""
        metadata = event["object"]["metadata"]
        version = metadata["resourceVersion"]
        if event["type"] != "BOOKMARK":
            changed(metadata["namespace"], metadata["name"])
    return version
