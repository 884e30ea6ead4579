"""Keeps this node linked: listens, and dials the given addresses again and again.

Seeds are names of cores. Each may resolve to many addresses, and is resolved every SEED_RESOLVE_S. Other targets are
added with `want` and removed with `release`. An address is not dialled while its node is linked, whoever dialled. Nodes
that dial this one arrive at `link_listener`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from flockmq import bounds, tasks
from flockmq.entropy import SYSTEM, Entropy
from flockmq.logs import Retrying
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.handshake import HandshakeDialer, HandshakeListener, Identity
from flockmq.membership.link import PEER_CLOSED, Link, LinkOwner, because
from flockmq.membership.link_certificates import LinkCertificates, tls_options
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.link_listener import Bind, LinkListener
from flockmq.membership.reachability import CORE_ROLES
from flockmq.membership.tunnels import Tunnels

log: Final = logging.getLogger(__name__)

Address = tuple[str, int]


class ViaCore(NamedTuple):
    """Reach this node through any core that is linked to it."""

    incarnation: str


DialTarget = Address | ViaCore


class _NoLink(NamedTuple):
    """Dialling failed."""

    reason: str
    is_unreachable: bool
    """No node is there, or it doesn't answer: it may be about to start or to stop."""


class _Target:
    """One address, or one node behind a core, that is kept linked."""

    def __init__(self) -> None:
        self.incarnation = ""
        """The node that answered there last."""
        self.wanted_by: dict[str, None] = {}
        self.is_seed = False
        self.task: asyncio.Task[None] | None = None


class Mesh:
    """All links of this node. `link_of` chooses the link to an incarnation."""

    def __init__(
        self,
        owner: LinkOwner,
        me: Identity,
        keys: LinkKeys,
        version: ClusterVersion,
        seeds: Sequence[Address],
        certificates: LinkCertificates | None = None,
        bind: Bind | None = None,
        entropy: Entropy = SYSTEM,
    ) -> None:
        self._owner = owner
        self._me = me
        self._keys = keys
        self._version = version
        self._seeds = seeds
        self._certificates = certificates
        self._entropy = entropy
        self._links: dict[str, list[Link]] = {}
        self._targets: dict[DialTarget, _Target] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.listener = LinkListener(
            owner, lambda: HandshakeListener(keys.all, self._me, version, entropy), certificates, bind
        )
        self.tunnels = Tunnels(lambda: self._me, self.links, self.listener.accept_tunnel, entropy.random)
        self.tunnels.listen(owner.handlers)

    # --- links ------------------------------------------------------------------------------------------------------

    def add(self, link: Link) -> None:
        links = self._links.setdefault(link.peer.incarnation, [])
        links.append(link)
        if not all(link.through for link in links):
            for superfluous in [link for link in links if link.through]:
                superfluous.close("there is a link without a core in between")

    def remove(self, link: Link) -> None:
        self.tunnels.link_down(link)
        links = self._links[link.peer.incarnation]
        links.remove(link)
        if not links:
            del self._links[link.peer.incarnation]

    def link_of(self, incarnation: str) -> Link | None:
        """Prefers a link that isn't closing, and a direct one."""
        links = self._links.get(incarnation)
        if links is None:
            return None
        return links[0] if len(links) == 1 else min(links, key=_disadvantages)

    def links_of(self, incarnation: str) -> list[Link]:
        return self._links.get(incarnation, [])

    def links(self) -> list[Link]:
        return [link for links in self._links.values() for link in links]

    def one_of_each(self) -> list[Link]:
        """One link to each linked node, chosen as by `link_of`."""
        return [link for incarnation in self._links if (link := self.link_of(incarnation)) is not None]

    def linked_cores(self) -> list[str]:
        """The incarnations of the linked cores."""
        return [incarnation for incarnation, links in self._links.items() if links[0].peer.role in CORE_ROLES]

    def core_links(self) -> list[Link]:
        return [link for link in self.links() if link.peer.role in CORE_ROLES]

    def spoken(self) -> dict[str, int]:
        """Linked incarnation → the highest cluster version that it speaks."""
        return {incarnation: links[0].speaks for incarnation, links in self._links.items()}

    # --- coming and going -------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._seeds:
            self._tasks.append(tasks.restartable(self._resolve_seeds, "cluster-seeds"))
        if self._keys.file is not None or self._certificates is not None:
            self._tasks.append(tasks.restartable(self._refresh, "cluster-keys"))

    async def stop(self) -> None:
        """Take leave of every peer and close."""
        await tasks.end(*(target.task for target in self._targets.values()), *self._tasks)
        await self.listener.stop()
        await _leave(
            [link for link in self.links() if link.through]
        )  # first, while the links that carry them still work
        await _leave(self.links())

    def rename(self, me: Identity) -> None:
        """This node is another incarnation: close every link, so that new ones are made."""
        self._me = me
        for link in self.links():
            link.close(f"this node goes on as {me.incarnation}")

    def want(self, incarnation: str, way: DialTarget) -> None:
        """Keep a link to this node: by its address, or through a core."""
        target = self._targets.setdefault(way, _Target())
        target.wanted_by[incarnation] = None
        self._keep(way, target)

    def release(self, incarnation: str) -> None:
        """No link to this node is needed any more. One that is up stays until it ends."""
        for way, target in list(self._targets.items()):
            target.wanted_by.pop(incarnation, None)
            self._drop_unwanted(way, target)

    # --- dialling ---------------------------------------------------------------------------------------------------

    def _keep(self, way: DialTarget, target: _Target) -> None:
        if target.task is None:
            target.task = tasks.vital(self._keep_linked(way, target), f"cluster-link-{_named(way)}")

    def _drop_unwanted(self, way: DialTarget, target: _Target) -> None:
        if not target.wanted_by and not target.is_seed:
            if target.task is not None:
                target.task.cancel()
            self._targets.pop(way, None)

    async def _keep_linked(self, way: DialTarget, target: _Target) -> None:
        delay = bounds.LINK_REDIAL_MIN_S
        logged = ""
        unreachable = Retrying(log, asyncio.get_running_loop().time)
        alone_since = asyncio.get_running_loop().time()
        while True:
            link = self._link_there(way, target) or await self._dial(way, target)
            if isinstance(link, _NoLink):
                if target.incarnation == self._me.incarnation:
                    return
                if link.is_unreachable:
                    unreachable.failed("no cluster link to %s, trying on: %s", _named(way), link.reason)
                elif link.reason != logged:
                    log.warning("no cluster link to %s, trying on: %s", _named(way), link.reason)
                    logged = link.reason
                if asyncio.get_running_loop().time() - alone_since > bounds.TUNNEL_AFTER_S:
                    for incarnation in target.wanted_by:
                        self.want(incarnation, ViaCore(incarnation))
            else:
                unreachable.worked()
                up_since = asyncio.get_running_loop().time()
                logged = await asyncio.shield(link.closed)
                alone_since = asyncio.get_running_loop().time()
                if alone_since - up_since > bounds.LINK_REDIAL_MAX_S:
                    delay = bounds.LINK_REDIAL_MIN_S
            await asyncio.sleep(delay * self._entropy.random.uniform(0.5, 1.0))
            delay = min(delay * 2, bounds.LINK_REDIAL_MAX_S)

    def _link_there(self, way: DialTarget, target: _Target) -> Link | None:
        """While there is only a link through a core, go on dialling the direct address."""
        for incarnation in (*target.wanted_by, target.incarnation):
            for link in self.links_of(incarnation):
                if isinstance(way, ViaCore) or not link.through:
                    return link
        return None

    async def _dial(self, way: DialTarget, target: _Target) -> Link | _NoLink:
        loop = asyncio.get_running_loop()
        options = tls_options(None if self._certificates is None else self._certificates.dialling)
        done: asyncio.Future[Link] = loop.create_future()
        dialer = HandshakeDialer(self._keys.own, self._me, self._version, self._entropy)

        def finish(link: Link) -> None:
            if not done.done():
                done.set_result(link)

        link: Link | None = None
        try:
            async with asyncio.timeout(bounds.LINK_HANDSHAKE_MAX_S):
                if isinstance(way, ViaCore):
                    link = Link(self._owner, dialer, finish)
                    self.tunnels.dial(link, way.incarnation)
                else:
                    _, link = await loop.create_connection(lambda: Link(self._owner, dialer, finish), *way, **options)
                await done
        except TimeoutError:
            return _NoLink(f"no answer within {bounds.LINK_HANDSHAKE_MAX_S} s", is_unreachable=True)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            return _NoLink(because(error), is_unreachable=not isinstance(error, ssl.SSLError))
        finally:
            if link is not None and not link.up:
                link.close("no handshake in time")
        if dialer.itself:
            target.incarnation = self._me.incarnation
        if not link.up:
            return _NoLink(link.reason, is_unreachable=link.reason == PEER_CLOSED or isinstance(way, ViaCore))
        target.incarnation = link.peer.incarnation
        return link

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(bounds.TLS_REFRESH_S)
            self._keys.refresh()
            if self._certificates is not None:
                self._certificates.refresh()

    async def _resolve_seeds(self) -> None:
        loop = asyncio.get_running_loop()
        unresolved: dict[Address, Retrying] = {}
        while True:
            found: dict[DialTarget, None] = {}
            for host, port in self._seeds:
                try:
                    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                    found.update(((str(info[4][0]), port), None) for info in infos[: bounds.SEED_ADDRESSES_MAX])
                    unresolved.pop((host, port), None)
                except (OSError, UnicodeError) as error:
                    found.update((address, None) for address, target in self._targets.items() if target.is_seed)
                    trouble = unresolved.setdefault((host, port), Retrying(log, loop.time))
                    trouble.failed("can't resolve the seed %s: %s", host, error)
            for address in found:
                target = self._targets.setdefault(address, _Target())
                target.is_seed = True
                self._keep(address, target)
            for address, target in list(self._targets.items()):
                if target.is_seed and address not in found:
                    target.is_seed = False
                    self._drop_unwanted(address, target)
            await asyncio.sleep(bounds.SEED_RESOLVE_S * self._entropy.random.uniform(0.8, 1.2))


async def _leave(links: Collection[Link]) -> None:
    """Returns when the peers have read everything and closed the links, or after LINK_LEAVE_MAX_S."""
    for link in links:
        link.leave()
    if links:
        await asyncio.wait([link.closed for link in links], timeout=bounds.LINK_LEAVE_MAX_S)
    for link in links:
        link.close("this node leaves")


def _disadvantages(link: Link) -> tuple[bool, bool]:
    return not link.is_open, bool(link.through)


def _named(way: DialTarget) -> str:
    return f"{way.incarnation} through a core" if isinstance(way, ViaCore) else f"{way[0]}:{way[1]}"
