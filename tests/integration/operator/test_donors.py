"""A node of a real cluster that sends clients away to balance them: its pod is out of the Service meanwhile. (The pods
are those of a Kubernetes in memory.)"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import aiohttp
import pytest

from flockmq_operator import nodes
from flockmq_operator.donors import reconcile
from flockmq_operator.donors.choice import Kept
from flockmq_operator.donors.reconcile import DonorReconciler
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import ask_nodes
from flockmq_operator.resources.labels import TAKES_CLIENTS
from integration.auth.conftest import Configured, api
from integration.broker.conftest import eventually
from integration.broker.test_rebalance import COUNT, crowd, row
from integration.dev.commands import PATIENCE_S
from unit.operator.built import templates
from unit.operator.world import NAMESPACE, World, context, pod

CONFIGURATION = """
[authentication]
allow_anonymous = true
"""
KEY = (NAMESPACE, "demo")


def replicant(name: str) -> Manifest:
    return pod(name, templates()["replicant"]["metadata"]["labels"], "1")


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not probe():  # noqa: ASYNC110 (the world has no events of its own)
            await asyncio.sleep(0.1)


async def test_a_donor_is_out_of_the_service_while_it_sends_clients_away(
    fleet: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.configure(CONFIGURATION)
    core, crowded, other = fleet.core("core-0"), fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    monkeypatch.setattr(nodes, "url_of", lambda _: f"http://127.0.0.1:{core.management}/api/v5/cluster")
    monkeypatch.setattr(reconcile, "LOOK_S", 0.2)
    world = World(replicant(crowded.name), replicant(other.name))

    def label(name: str) -> str:
        found: str = world.objects[Ref("Pod", name)]["metadata"]["labels"][TAKES_CLIENTS]
        return found

    async with aiohttp.ClientSession() as session:
        metrics = Metrics()
        donors = DonorReconciler(world, functools.partial(ask_nodes, session), metrics, lambda *_: None)
        with crowd(crowded):
            eventually(lambda: row(core, crowded)["clients"] == COUNT, "its heartbeat tells it")
            donors.keep(KEY, Kept(context(), "replicant", 2))
            await until(lambda: 'passes_total{result="unchanged"} 1\n' in metrics.text())
            assert (label(crowded.name), label(other.name)) == ("true", "true")

            status, _ = api(core, "PUT", "/rebalance", {"absolute_threshold": 2, "rate": 1})
            assert status == 200
            eventually(lambda: row(core, crowded)["state"] == "rebalancing", "it sends clients away")
            await until(lambda: donors.wake(*KEY) or label(crowded.name) == "false")  # as a MqttRebalance wakes them
            assert label(other.name) == "true"

            assert api(core, "DELETE", "/rebalance") == (204, None)
            await until(lambda: label(crowded.name) == "true")
        await donors.stop()
