"""`flockmq-operator`: check the environment, wait for the Lease, run kopf until told to stop.

Exit codes: 0 stopped; 1 the Lease was lost or the operator failed; 2 the environment is wrong; 3 the API server can't
be reached, or doesn't know MqttClusters, MqttUsers and MqttRebalances; 4 the health port is taken.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import signal
import sys

import aiohttp
import kopf
from kubernetes.aio.config import ConfigException

from flockmq_operator.handlers import registry
from flockmq_operator.health import serve_health
from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.leader import Candidate, LeaseLost
from flockmq_operator.manifest import Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.name_watch import NAMED_KINDS, watch_names
from flockmq_operator.nodes import ask_nodes
from flockmq_operator.rebalances.reconcile import RebalanceReconciler
from flockmq_operator.rebalances.spec import REBALANCE_PLURAL
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.settings import Settings, SettingsError, read_settings
from flockmq_operator.spec import GROUP, PLURAL, VERSION
from flockmq_operator.users.reconcile import UserReconciler
from flockmq_operator.users.spec import USER_PLURAL

log = logging.getLogger(__name__)


class Unusable(Exception):
    """Something the operator needs isn't there; `code` is the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main() -> None:
    try:
        settings = read_settings()
        configure_logs(settings)
        asyncio.run(operate(settings))
    except SettingsError as error:
        sys.exit(_complain(2, str(error)))
    except Unusable as error:
        sys.exit(_complain(error.code, str(error)))


def _complain(code: int, message: str) -> int:
    print(f"flockmq-operator: {message}", file=sys.stderr)
    return code


def configure_logs(settings: Settings) -> None:
    plain = settings.flockmq_log_format == "plain"
    kopf.configure(log_format=kopf.LogFormat.FULL if plain else kopf.LogFormat.JSON)
    logging.getLogger().setLevel(settings.flockmq_log_level)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it tells of every event
    logging.getLogger("kubernetes.aio.config").setLevel(logging.ERROR)  # its refusal is told by open_kube


async def operate(settings: Settings) -> None:
    stop, ready, metrics = asyncio.Event(), asyncio.Event(), Metrics()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        health = await serve_health(settings.flockmq_health_port, ready, metrics)
    except OSError as error:
        raise Unusable(4, f"FLOCKMQ_HEALTH_PORT={settings.flockmq_health_port}: {error.strerror}") from None
    try:
        # The Lease has connections of its own: its requests, which have a deadline, wait behind no others.
        async with await open_kube() as kube, await open_kube() as for_lease, aiohttp.ClientSession() as session:
            await check_cluster(kube)
            ready.set()
            reconciler = Reconciler(kube, settings, functools.partial(ask_nodes, session), metrics)
            users = UserReconciler(kube, settings, metrics)
            rebalances = RebalanceReconciler(kube, settings, metrics, reconciler.donors.wake)
            lead = functools.partial(run_kopf, kube, settings, reconciler, users, rebalances, metrics)
            candidate = Candidate(for_lease, settings.pod_namespace, settings.pod_name)
            leading = asyncio.create_task(candidate.while_leading(lead))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not leading.done():  # a follower; a leader is told to stop by kopf, which handles signals itself
                leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading
    except LeaseLost as error:
        raise Unusable(1, str(error)) from None
    finally:
        await health.cleanup()


async def open_kube() -> Kube:
    try:
        return await Kube.open()
    except (ConfigException, OSError) as error:
        raise Unusable(2, f"neither a ServiceAccount nor a kubeconfig is usable (KUBECONFIG): {error}") from None


async def check_cluster(kube: Kube) -> None:
    """Raises Unusable."""
    try:
        known = await kube.request("GET", f"/apis/{GROUP}/{VERSION}")
    except Unreachable as error:
        raise Unusable(3, f"the API server can't be reached: {error}") from None
    except Refused as error:
        if error.status != 404:
            raise Unusable(3, f"the API server refuses the operator: {error}") from None
        known = {}
    served = {resource["name"] for resource in known.get("resources", ())}
    for plural in (PLURAL, USER_PLURAL, REBALANCE_PLURAL):
        if plural not in served:
            raise Unusable(3, f"CustomResourceDefinition {plural}.{GROUP} isn't installed: apply crds/{plural}.yaml")


async def run_kopf(
    kube: Kube,
    settings: Settings,
    reconciler: Reconciler,
    users: UserReconciler,
    rebalances: RebalanceReconciler,
    metrics: Metrics,
) -> None:
    """Watch and reconcile until a signal says to stop. Cancelled, the Lease is lost: nothing is written any more."""
    metrics.leading = True
    log.info("leading; watching %s", ", ".join(settings.namespaces) or "all namespaces")
    namespaces: list[str | None] = [*settings.namespaces] or [None]

    def changed(namespace: str, what: Ref) -> None:
        for cluster in reconciler.named_changed(namespace, what):
            users.cluster_changed(namespace, cluster)
        users.named_changed(namespace, what)

    def begun(namespace: str | None) -> None:
        reconciler.wake_all(namespace)
        users.wake_all(namespace)

    watches = [
        asyncio.create_task(watch_names(kube, kind, namespace, changed, begun), name=f"{kind}s of {namespace}")
        for kind, namespace in itertools.product(NAMED_KINDS, namespaces)
    ]
    watching = asyncio.create_task(
        kopf.operator(
            registry=registry,
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            memo=kopf.Memo(reconciler=reconciler, users=users, rebalances=rebalances),
        ),
        name="kopf",
    )
    try:
        await asyncio.wait((watching,))  # cancelled, kopf takes some seconds to end, and another operator doesn't wait
    finally:
        await asyncio.gather(*(part.stop() for part in (reconciler, users, rebalances)))
        metrics.leading = False
        for task in (*watches, watching):
            task.cancel()
        await asyncio.gather(*watches, watching, return_exceptions=True)
    await reconciler.donors.bring_back()
    await watching
