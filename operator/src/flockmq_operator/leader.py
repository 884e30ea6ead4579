"""One of several operators acts: the one that holds the Lease.

The rules are client-go's leader election's. Others' clocks are never compared with ours: a Lease has run out when it
stood still for its whole duration by our own monotonic clock. Who can't renew for RENEW_S stops acting, some seconds
before anybody else may begin. Every write carries the resourceVersion that was read, so of two only one succeeds.
Beyond these rules, nobody waits for a holder whose pod doesn't exist any more: whoever deleted it by force has told the
API server that its process has ended. Should it act all the same, it stops when it next renews, within RETRY_S.
(The `kubernetes` package's own LeaseLock can't create a Lease: version 37.0.2 fails in its argument check.)
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.manifest import Manifest

log = logging.getLogger(__name__)

LEASE = "flockmq-operator"
LEASE_S = 15
RENEW_S = 10.0
RETRY_S = 2.0
REQUEST_S = 4.0
"""The deadline of a request: one that hangs leaves time for another before RENEW_S."""


class LeaseLost(Exception):
    pass


class Sighting(NamedTuple):
    """A Lease as it was last seen, and since when it looks like this."""

    version: str
    since_s: float


def is_free(lease: Manifest, identity: str, sighting: Sighting | None, now_s: float) -> bool:
    """Whether `identity` may write its name into `lease`: nobody's, ours, or run out."""
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity")
    if not holder or holder == identity:
        return True
    stood_still = sighting is not None and sighting.version == lease["metadata"]["resourceVersion"]
    return stood_still and sighting is not None and now_s - sighting.since_s > spec.get("leaseDurationSeconds", LEASE_S)


def held(lease: Manifest, identity: str, now: datetime) -> Manifest:
    """`lease` with `identity` as its holder, renewed."""
    old = lease.get("spec") or {}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: Manifest = {**old, "holderIdentity": identity, "leaseDurationSeconds": LEASE_S, "renewTime": stamp}
    if old.get("holderIdentity") != identity:
        spec |= {"acquireTime": stamp, "leaseTransitions": old.get("leaseTransitions", -1) + 1}
    return {**lease, "spec": spec}


class Try(Enum):
    HELD = 1
    OTHERS = 2
    UNKNOWN = 3
    """The Lease couldn't be read or written."""


class Candidate:
    """This process' part in the election. `identity`: the name of its pod in `namespace`."""

    def __init__(self, kube: Kube, namespace: str, identity: str) -> None:
        self._kube = kube
        self._identity = identity
        self._base = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._sighting: Sighting | None = None

    async def while_leading(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, run `lead`, give the Lease back when it ends. Raises LeaseLost, after ending `lead`."""
        while await self._try_to_hold() != Try.HELD:  # noqa: ASYNC110 (what is awaited is another process)
            await asyncio.sleep(RETRY_S)
        leading = asyncio.ensure_future(lead())
        try:
            await self._renew_until(leading)
            await leading
        finally:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await self._give_back()

    async def _renew_until(self, leading: asyncio.Future[None]) -> None:
        renewed_s = time.monotonic()
        while not (await asyncio.wait((leading,), timeout=RETRY_S))[0]:
            started_s = time.monotonic()
            tried = await self._try_to_hold(min(REQUEST_S, renewed_s + RENEW_S - started_s))
            is_too_late = time.monotonic() + RETRY_S >= renewed_s + RENEW_S  # for another try
            if tried == Try.HELD:
                renewed_s = started_s
            elif tried == Try.OTHERS or is_too_late:
                raise LeaseLost(f"Lease {LEASE} couldn't be renewed: another operator may act now")

    async def _try_to_hold(self, within_s: float = REQUEST_S) -> Try:
        try:
            async with asyncio.timeout(within_s):
                lease = await self._read()
                now = datetime.now(UTC)
                if lease is None:
                    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}}
                    await self._kube.request("POST", self._base, body=held(lease, self._identity, now))
                    return Try.HELD
                may_take = is_free(lease, self._identity, self._sighting, time.monotonic())
                if not may_take and not await self._is_gone(lease["spec"]["holderIdentity"]):
                    self._note(lease)
                    return Try.OTHERS
                await self._kube.request("PUT", f"{self._base}/{LEASE}", body=held(lease, self._identity, now))
                return Try.HELD
        except Refused as refused:
            if refused.status != 409:  # 409: another was faster
                log.error("the Lease %s: %s", LEASE, refused)
        except (Unreachable, TimeoutError) as error:
            log.warning("the Lease %s can't be asked for: %s", LEASE, str(error) or "no answer in time")
        return Try.UNKNOWN

    async def _is_gone(self, holder: str) -> bool:
        try:
            await self._kube.request("GET", f"{self._pods}/{holder}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return True
        return False

    async def _read(self) -> Manifest | None:
        try:
            return await self._kube.request("GET", f"{self._base}/{LEASE}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def _note(self, lease: Manifest) -> None:
        version = lease["metadata"]["resourceVersion"]
        if self._sighting is None or self._sighting.version != version:
            self._sighting = Sighting(version, time.monotonic())

    async def _give_back(self) -> None:
        """So that the next operator needn't wait for the Lease to run out."""
        try:
            async with asyncio.timeout(REQUEST_S):
                lease = await self._read()
                if lease and lease["spec"].get("holderIdentity") == self._identity:
                    spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
                    await self._kube.request("PUT", f"{self._base}/{LEASE}", body={**lease, "spec": spec})
        except (Refused, Unreachable, TimeoutError) as error:
            log.info("the Lease %s wasn't given back, and will run out: %s", LEASE, str(error) or "no answer in time")
