"""Paths that lose what is sent on them: one way, both ways, to some nodes or to all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from flockmq.cluster.mesh import Address

from .conftest import Nodes, until
from .proxy import Proxy

Proxied = Callable[[Address], Awaitable[Proxy]]


@pytest.fixture
async def proxied() -> AsyncIterator[Proxied]:
    """Makes paths that may lose what is sent."""
    proxies: list[Proxy] = []

    async def start(target: Address) -> Proxy:
        proxies.append(Proxy(target))
        await proxies[-1].start()
        return proxies[-1]

    yield start
    for proxy in proxies:
        await proxy.stop()


@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_link_that_is_open_one_way_only_is_closed_by_both_ends(
    nodes: Nodes, proxied: Proxied, way: str
) -> None:
    core = await nodes.start("core-0", "core")
    proxy = await proxied(core.address)
    nodes.seeds = (proxy.address,)
    edge = await nodes.start("edge-0", "replicant")
    await nodes.settled()
    (there,), (back,) = edge.cluster.mesh.links_of(core.incarnation), core.cluster.mesh.links_of(edge.incarnation)
    proxy.loses_there, proxy.loses_back = way == "there", way == "back"
    deaf, heard = (back, there) if way == "there" else (there, back)
    await until(deaf.closed.done)
    await until(heard.closed.done)
    assert deaf.closed.result().startswith("nothing was heard on it")
    assert heard.closed.result().startswith("it hears nothing of this node")
    await until(lambda: bool(edge.cluster.mesh.links_of(core.incarnation)))  # by the address that its row says
