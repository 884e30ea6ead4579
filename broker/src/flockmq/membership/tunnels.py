"""All tunnels that end at this node, and on a core also those that it relays from one link to another.

A node opens a tunnel on its link to a core, for a third node. The core opens the other half on its own link to that
node. Ids belong to one link: the side that dialled it uses odd ids, the other even ones; no id is used twice.
Invariants:

- A core doesn't read what it relays. Per tunnel and direction it holds at most TUNNEL_WINDOW_BYTES. A peer that sends
  more than its credit, or gives credit for more than it got, loses the link.
- The core tells both ends each other's role, which it knows from its own links: a tunnel has no certificate.
- Tunnels use direct links only, through one core: a tunnel never goes through another tunnel.
- If one half of a tunnel is lost, the other half is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Protocol

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.frames import FrameError
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link, LinkHandlers
from flockmq.membership.reachability import CORE_ROLES
from flockmq.membership.tunnel import Tunnel


class End(Protocol):
    """What belongs to an id on a link: this node's end of a tunnel, or a core's relay to another node."""

    def received(self, chunk: bytes) -> None: ...
    def granted(self, size_bytes: int, role: str) -> None: ...
    def ended(self, reason: str) -> None: ...


class Tunnels:
    """`links` are this node's. `me` returns its identity. `accept_tunnel` takes one that another node dialled."""

    def __init__(
        self,
        me: Callable[[], Identity],
        links: Callable[[], Iterable[Link]],
        accept_tunnel: Callable[[Tunnel], None],
        random: Random,
    ) -> None:
        self.relayed = 0
        """Tunnels between two other nodes that this core relays."""
        self.relayed_bytes = 0
        """Bytes relayed so far."""
        self._me = me
        self._links = links
        self._accept_tunnel = accept_tunnel
        self._random = random
        self._ends: dict[Link, dict[int, End]] = {}
        self._last_ids: dict[Link, int] = {}

    def dial(self, link: Link, incarnation: str) -> None:
        """Start `link` on a tunnel to that node, through any core. Raises ConnectionError."""
        carriers = [
            carrier
            for carrier in self._links()
            if not carrier.through and carrier.peer.role in CORE_ROLES and carrier.peer.incarnation != incarnation
        ]
        if not carriers:
            raise ConnectionError("there is no link to a core to go through")
        carrier = self._random.choice(carriers)
        if len(self._ends.get(carrier, ())) >= bounds.TUNNELS_MAX:
            raise ConnectionError(f"{bounds.TUNNELS_MAX} tunnels go through {carrier.peer.incarnation}")
        tunnel_id = self._next_id(carrier)
        carrier.control(frames.TunnelOpen(tunnel_id, incarnation))
        self._make_end(carrier, tunnel_id, "").start(link)

    # --- what comes on a link ---------------------------------------------------------------------------------------

    def listen(self, handlers: LinkHandlers) -> None:
        handlers.frames[frames.TUNNEL] = self._received
        for message in (frames.TunnelOpen, frames.TunnelCredit, frames.TunnelClose):
            handlers.controls[message] = self.take

    def _received(self, link: Link, body: bytes) -> None:
        self.received(link, *frames.parse_id(body))

    def take(self, link: Link, message: frames.TunnelOpen | frames.TunnelCredit | frames.TunnelClose) -> None:
        """Handle a control message of tunnels. Raises FrameError."""
        end = self._ends.get(link, {}).get(message.id)
        match message:
            case frames.TunnelOpen(tunnel_id, target, role):
                if end is not None or tunnel_id % 2 == link.dialled:
                    raise FrameError(f"a second tunnel {tunnel_id}")
                if reason := self._open(link, tunnel_id, target, role):
                    link.control(frames.TunnelClose(tunnel_id, reason))
            case frames.TunnelCredit(_, size_bytes, role):
                if end is not None:
                    end.granted(size_bytes, role)
            case frames.TunnelClose(tunnel_id, reason):
                if end is not None:
                    end.ended(reason)

    def received(self, link: Link, tunnel_id: int, chunk: bytes) -> None:
        """Handle bytes of a tunnel. Bytes that arrive after its end are dropped. Raises FrameError."""
        if (end := self._ends.get(link, {}).get(tunnel_id)) is not None:
            end.received(chunk)

    def link_down(self, link: Link) -> None:
        self._last_ids.pop(link, None)
        for end in list(self._ends.get(link, {}).values()):
            end.ended(f"the link between {self._me().incarnation} and {link.peer.incarnation} was lost")
        self._ends.pop(link, None)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _open(self, link: Link, tunnel_id: int, target: str, role: str) -> str:
        """Open a tunnel. Returns why it can't be opened, in words that don't name the core: so it is logged once.
        Empty: done. Only a core may tell another node's `role`."""
        me = self._me()
        if link.through or len(self._ends.get(link, ())) >= bounds.TUNNELS_MAX:
            return "the core that was asked has no room for another tunnel"
        if target == me.incarnation:
            of_dialler = role if link.peer.role in CORE_ROLES else link.peer.role
            self._accept_tunnel(self._make_end(link, tunnel_id, of_dialler))
            return ""
        if me.role not in CORE_ROLES:
            return "what was asked is no core"
        onto = next((other for other in self._links() if other.peer.incarnation == target and not other.through), None)
        if onto is None or onto.peer == link.peer or len(self._ends.get(onto, ())) >= bounds.TUNNELS_MAX:
            return f"the core that was asked has no link to {target}"
        self._pass_on(link, tunnel_id, onto)
        return ""

    def _make_end(self, link: Link, tunnel_id: int, role: str) -> Tunnel:
        tunnel = Tunnel(link, tunnel_id, role, partial(self._forget, link, tunnel_id))
        self._ends.setdefault(link, {})[tunnel_id] = tunnel
        return tunnel

    def _pass_on(self, link: Link, tunnel_id: int, onto: Link) -> None:
        onto_id = self._next_id(onto)
        there, back = _Hop(self, onto, onto_id), _Hop(self, link, tunnel_id)
        there.opposite, back.opposite = back, there
        self._ends.setdefault(link, {})[tunnel_id] = there
        self._ends.setdefault(onto, {})[onto_id] = back
        self.relayed += 1
        onto.control(frames.TunnelOpen(onto_id, onto.peer.incarnation, link.peer.role))
        link.control(frames.TunnelCredit(tunnel_id, 0, onto.peer.role))

    def _next_id(self, link: Link) -> int:
        self._last_ids[link] = self._last_ids.get(link, -1 if link.dialled else 0) + 2
        return self._last_ids[link]

    def _forget(self, link: Link, tunnel_id: int) -> None:
        self._ends.get(link, {}).pop(tunnel_id, None)

    def _forget_hops(self, *hops: _Hop) -> None:
        self.relayed -= 1
        for hop in hops:
            self._forget(hop.link, hop.id)


class _Hop:
    """One direction of a tunnel on the core that relays it: it sends on its link what arrives on the opposite's
    link."""

    __slots__ = ("_tunnels", "id", "link", "opposite", "room_bytes")

    def __init__(self, tunnels: Tunnels, link: Link, tunnel_id: int) -> None:
        self.link = link
        self.id = tunnel_id
        self.room_bytes = bounds.TUNNEL_WINDOW_BYTES
        """How many bytes may still arrive before the far end gives more credit."""
        self.opposite: _Hop
        self._tunnels = tunnels

    def received(self, chunk: bytes) -> None:
        self.room_bytes -= len(chunk)
        if self.room_bytes < 0:
            raise FrameError("more bytes of a tunnel than it had credit for")
        self._tunnels.relayed_bytes += len(chunk)
        self.link.send_tunnelled([frames.id_header(frames.TUNNEL, self.id, len(chunk)), chunk], len(chunk))

    def granted(self, size_bytes: int, role: str) -> None:
        """The far end has read this many bytes of the other direction."""
        self.opposite.room_bytes += size_bytes
        if self.opposite.room_bytes > bounds.TUNNEL_WINDOW_BYTES:
            raise FrameError("credit for more bytes of a tunnel than came")
        self.link.control(frames.TunnelCredit(self.id, size_bytes))

    def ended(self, reason: str) -> None:
        self._tunnels._forget_hops(self, self.opposite)
        self.link.send_tunnelled([frames.control(frames.TunnelClose(self.id, reason))], 0)
