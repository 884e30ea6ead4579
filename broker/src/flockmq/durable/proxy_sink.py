"""The two edges of a session that runs here: its slot's part of the store, and the way to its front.

What always holds: what was put in a turn is sealed behind it; nothing goes to a front that was cut before all of it
goes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from flockmq.durable.commit_queue import HomeSink
from flockmq.durable.pending_writes import PendingWrites
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_record import Journal


class Deliver(Protocol):
    def __call__(self, incarnation: str, token: int, packets: bytes) -> None: ...


class SlotJournal(Journal):
    """One slot's part of the store, until it is `closed`. `unsealed`: something was put; what barriers let go is
    flushed.
    """

    def __init__(
        self, slot: int, store: PendingWrites, unsealed: Callable[[], None], flush: Callable[[], None]
    ) -> None:
        super().__init__(slot)
        self._store = store
        self._unsealed = unsealed
        self._flush = flush

    def close(self) -> None:
        """The slot is another home's; when it comes back it has another journal."""
        self.is_closed = True

    def put(self, client_id: bytes, field: bytes, value: bytes) -> None:
        if not self.is_closed:
            self._store.put(self.slot, client_id, field, value)
            self._unsealed()

    def put_both(self, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes) -> None:
        if not self.is_closed:
            self._store.put_both(self.slot, client_id, field, value, other, other_value)
            self._unsealed()

    def delete(self, client_id: bytes, field: bytes) -> None:
        if not self.is_closed:
            self._store.delete(self.slot, client_id, field)
            self._unsealed()

    def drop(self, client_id: bytes) -> None:
        if not self.is_closed:
            self._store.drop(self.slot, client_id)

    def barrier(self, done: Callable[[bool], None]) -> None:
        if self.is_closed:
            done(False)
        else:
            self._store.barrier(self.slot, partial(self._answered, done))

    def _answered(self, done: Callable[[bool], None], durable: bool) -> None:
        """Between two turns."""
        done(durable)
        self._flush()


class ProxyNode:
    """A node with fronts: `sessions` by their tokens; `cuts` counts how often what was sent may have been lost."""

    __slots__ = ("cuts", "incarnation", "sessions")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.sessions: dict[int, DurableSession] = {}
        self.cuts = 0


class ProxySink(HomeSink):
    """The way to the connection's node, once a turn. `cuts`: those of the node after which all of it went again.
    `is_told`: the node was told that its connection is admitted; `former_expiry_s`: what the session's was before that,
    -1 for none.
    """

    __slots__ = (
        "client_id", "cuts", "deliver", "former_expiry_s", "heard", "is_told", "node", "on_flow",
        "on_overflow", "token", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        router: DurableRouter,
        version: int,
        deliver: Deliver,
        on_overflow: Callable[[ProxySink], None],
        on_flow: Callable[[ProxySink], None],
        node: ProxyNode,
        client_id: bytes,
        token: int,
    ) -> None:
        super().__init__(router, version)
        self.deliver = deliver
        self.on_overflow = on_overflow
        self.on_flow = on_flow
        self.node = node
        self.cuts = node.cuts
        self.heard = 0
        """The number of the last question of its connection."""
        self.waiting: list[Callable[[], None]] | None = None
        """What is asked behind a SUBSCRIBE, while that isn't placed."""
        self.client_id = client_id
        self.token = token
        self.is_told = False
        self.former_expiry_s = -1

    def overflow(self) -> None:
        self.on_overflow(self)

    def flow_changed(self) -> None:
        self.on_flow(self)

    def flush(self) -> None:
        if self.out:
            packets = b"".join(self.out)
            self.out.clear()
            self.out_bytes = 0
            if self.cuts == self.node.cuts:
                self.deliver(self.node.incarnation, self.token, packets)
