"""One of several operators acts: the one that holds the Lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

log = logging.getLogger(__name__)

LEASE = "flockmq-operator"
LEASE_S, RENEW_S, RETRY_S = 15, 10, 2
"""Who can't renew for RENEW_S stops acting before others may take over, after LEASE_S."""
REQUEST_S = 4.0
"""The deadline of a request, so that a connection that hangs can't outlast RENEW_S."""


class DeadlineLock(LeaseLock):
    """A LeaseLock to which a network failure is a failed attempt, not the end of the election."""

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        try:
            async with asyncio.timeout(REQUEST_S):
                return await super().get(name, namespace)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        return await _attempt(super().create(name, namespace, election_record))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await _attempt(super().update(name, namespace, updated_record))


async def _attempt(request: Awaitable[bool]) -> bool:
    try:
        async with asyncio.timeout(REQUEST_S):
            return await request
    except (TimeoutError, OSError, aiohttp.ClientError) as error:
        log.warning("the Lease can't be written: %s", error or type(error).__name__)
        return False


async def while_leading(
    api: client.ApiClient, namespace: str, identity: str, lead: Callable[[], Awaitable[None]]
) -> None:
    """Wait for the Lease, run `lead`, and give the Lease back when it ends. Ends, too, when the Lease is lost."""
    ended = asyncio.Event()
    failure: list[BaseException] = []

    async def run() -> None:
        try:
            await lead()
        except Exception as error:
            failure.append(error)
        finally:
            ended.set()

    async def lost() -> None:
        log.error("the Lease %s/%s is lost: another operator may act now; ending", namespace, LEASE)

    lock = DeadlineLock(LEASE, namespace, identity, api)
    election = asyncio.create_task(LeaderElection(Config(lock, LEASE_S, RENEW_S, RETRY_S, run, lost)).run())
    done = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((election, done), return_when=asyncio.FIRST_COMPLETED)
    finally:
        held = not election.done()
        for task in (election, done):
            task.cancel()
        await asyncio.gather(election, done, return_exceptions=True)
        if held:
            await release(api, namespace, identity)
    if failure:
        raise failure[0]


async def release(api: client.ApiClient, namespace: str, identity: str) -> None:
    """Give the Lease back, if it is ours, so that the next operator needn't wait for its end."""
    leases = client.CoordinationV1Api(api)
    try:
        async with asyncio.timeout(REQUEST_S):
            lease = await leases.read_namespaced_lease(LEASE, namespace)
            if lease.spec and lease.spec.holder_identity == identity:
                lease.spec.holder_identity = None
                await leases.replace_namespaced_lease(LEASE, namespace, lease)
    except (TimeoutError, OSError, aiohttp.ClientError, ApiException) as error:
        log.info("the Lease wasn't given back, and will run out: %s", error)
