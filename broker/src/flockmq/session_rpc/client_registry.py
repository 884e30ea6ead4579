"""Which connection holds which client id, in a core's memory. No I/O.

A client id hashes to a slot; the core that owns the slot is its owner. Invariants for each client id:
- At most one connection holds it. An attach waits until the holder is gone; of several that wait, only the newest
  remains, and the others are superseded.
- Tokens only grow. A token is (epoch, count, slot) as one integer. The epoch is the position in the cluster log at
  which this core first served the slot, so a later owner of a slot always assigns higher tokens than an earlier one.
- A token names one connection in the cluster, because at each log position a slot has one owner, which counts.
- After a slot moved, nodes register their connections. Of two with the same client id, the one with the higher token
  stays; but if they belong to different users, the older one stays.
- A connection whose node didn't confirm in time that it is closed is closed when that node is back, though the newer
  one may have ended meanwhile [MQTT-3.1.4-3].
- A client id belongs to its user while a connection holds it: no other user gets it or can close that connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from flockmq.bounds import SLOTS, UNCONFIRMED_MAX
from flockmq.routing.slots import slot_of

COUNT_BITS: Final = 48
SLOT_BITS: Final = (SLOTS - 1).bit_length()
TOKEN_BYTES: Final = 16


Holder = tuple[str, int, bytes | None]
"""(incarnation, token, user) of a connection; user None: client ids aren't bound to users at its node. A plain tuple,
because there may be a million, and the garbage collector untracks plain tuples of strings and numbers.
"""


def are_different_users(user: bytes | None, other: bytes | None) -> bool:
    """True if both users are known and differ."""
    return user is not None and other is not None and user != other


class Kick(NamedTuple):
    """Close this connection with 0x8E, and send DETACH when it is closed."""

    incarnation: str
    client_id: bytes
    token: int


class Attached(NamedTuple):
    """The result of an attach. `admitted`: the connection holds the client id; otherwise it waits until
    `kick` is done.
    """

    token: int
    admitted: bool
    kick: Kick | None = None
    superseded: Holder | None = None
    """A connection that waited and was replaced by the new one."""


class ClientRegistry:
    """The client ids in the slots that this core owns."""

    def __init__(self, unconfirmed_max: int = UNCONFIRMED_MAX) -> None:
        self._slots: dict[int, dict[bytes, Holder]] = {}
        self._epochs: dict[int, int] = {}
        self._waiting: dict[bytes, Holder] = {}
        self._unconfirmed: dict[bytes, int] = {}
        """Connections that may still be there: client id → the newest token. Their nodes may be back after a purge."""
        self._unconfirmed_max = unconfirmed_max
        self._gone: set[str] = set()
        self._count = 0

    def __len__(self) -> int:
        """Number of client ids that are held; includes those of purged nodes until `sweep`."""
        return sum(map(len, self._slots.values()))

    def unconfirmed_ends(self) -> int:
        """Number of connections whose nodes didn't confirm in time that they are closed."""
        return len(self._unconfirmed)

    def owns(self, slot: int) -> bool:
        return slot in self._slots

    def slots(self) -> list[int]:
        """The slots that this core owns."""
        return list(self._slots)

    def own(self, slot: int) -> None:
        """This core owns the slot now, and doesn't know its connections yet."""
        self._slots.setdefault(slot, {})

    def disown(self, slot: int) -> list[tuple[bytes, Holder]]:
        """Another core owns the slot now. Returns the connections that waited."""
        self._slots.pop(slot, None)
        self._epochs.pop(slot, None)
        moved = [(client_id, holder) for client_id, holder in self._waiting.items() if slot_of(client_id) == slot]
        for client_id, _ in moved:
            del self._waiting[client_id]
        return moved

    def floor(self, slot: int, epoch: int) -> int:
        """A value above all tokens of former owners of the slot, and below those of this owner. `epoch`
        as in `attach`.
        """
        return self._epochs.setdefault(slot, epoch) << COUNT_BITS + SLOT_BITS | slot

    def attach(self, client_id: bytes, incarnation: str, epoch: int, user: bytes | None = None) -> Attached | None:
        """A new connection wants the client id. Returns None if it belongs to another user. `epoch`: the log position,
        used when the slot is first served.
        """
        slot = slot_of(client_id)
        held = self._slots[slot]
        old = held.get(client_id)
        if old is not None and old[0] in self._gone:
            self.not_confirmed(client_id, old[1])
            old = None
        if old is not None and are_different_users(user, old[2]):
            return None
        self._count += 1
        token = self.floor(slot, epoch) + (self._count << SLOT_BITS)
        new = (incarnation, token, user)
        if old is None:
            held[client_id] = new
            return Attached(token, True)
        superseded = self._waiting.get(client_id)
        self._waiting[client_id] = new
        return Attached(token, False, Kick(old[0], client_id, old[1]), superseded)

    def holder(self, client_id: bytes) -> Holder | None:
        """The connection that holds the client id, unless its node was purged."""
        held = self._slots.get(slot_of(client_id), {}).get(client_id)
        return None if held is None or held[0] in self._gone else held

    def client_ids(self, slot: int) -> Collection[bytes]:
        """The client ids that are held; includes those of purged nodes until `sweep`."""
        return self._slots.get(slot, {})

    def holds(self, client_id: bytes, incarnation: str, token: int) -> bool:
        """True if this connection holds the client id and its node wasn't purged."""
        holder = self._slots.get(slot_of(client_id), {}).get(client_id)
        if holder is None or holder[1] != token:
            return False
        return holder[0] == incarnation and incarnation not in self._gone

    def detach(self, client_id: bytes, token: int) -> Holder | None:
        """A connection ended. Returns the one that is admitted in its place, if any."""
        if self._unconfirmed.get(client_id) == token:
            del self._unconfirmed[client_id]
        held = self._slots.get(slot_of(client_id))
        if held is None:
            return None
        waiting = self._waiting.get(client_id)
        if waiting is not None and waiting[1] == token:
            del self._waiting[client_id]
            return None
        old = held.get(client_id)
        if old is None or old[1] != token:
            return None
        if waiting is None:
            del held[client_id]
            return None
        held[client_id] = self._waiting.pop(client_id)
        return waiting

    def not_confirmed(self, client_id: bytes, token: int) -> None:
        """The connection's node didn't confirm in time that it is closed."""
        self._unconfirmed.pop(client_id, None)
        self._unconfirmed[client_id] = token
        if len(self._unconfirmed) > self._unconfirmed_max:
            del self._unconfirmed[next(iter(self._unconfirmed))]

    def _was_to_be_closed(self, client_id: bytes, token: int) -> bool:
        return token <= self._unconfirmed.get(client_id, 0)

    def register(self, client_id: bytes, incarnation: str, token: int, user: bytes | None = None) -> Kick | None:
        """A node reports an existing connection, after the slot moved here or its link was lost. Returns which of two
        connections must be closed. If another connection waits for that, an earlier KICK may have been lost.
        """
        held = self._slots[slot_of(client_id)]
        old = held.get(client_id)
        if self._was_to_be_closed(client_id, token):
            return Kick(incarnation, client_id, token)
        if old is None or old[0] in self._gone:
            held[client_id] = (incarnation, token, user)
            return None
        if self.has_newer(client_id, token, user):
            return Kick(incarnation, client_id, token)
        held[client_id] = (incarnation, token, user)
        return None if old[1] == token else Kick(old[0], client_id, old[1])

    def others_waiting(self, client_id: bytes, user: bytes | None) -> Holder | None:
        """Remove and return a waiting connection of another user than `user`, to whom the client id belongs."""
        waiting = self._waiting.get(client_id)
        return self._waiting.pop(client_id) if waiting is not None and are_different_users(user, waiting[2]) else None

    def has_newer(self, client_id: bytes, token: int, user: bytes | None = None) -> bool:
        """True if a newer connection holds the client id, waits for it or had it, or another user has an older one."""
        if self._was_to_be_closed(client_id, token):
            return True
        old = self._slots.get(slot_of(client_id), {}).get(client_id)
        if old is not None and old[0] not in self._gone and are_different_users(user, old[2]):
            return old[1] < token
        is_older = old is not None and old[0] not in self._gone and old[1] > token
        return is_older or client_id in self._waiting

    def is_back(self, client_id: bytes, token: int) -> bool:
        """True if a later connection than this one holds the client id."""
        holder = self.holder(client_id)
        return holder is not None and holder[1] > token

    def node_gone(self, incarnation: str) -> list[tuple[bytes, Holder]]:
        """The node was purged: its connections hold nothing. Returns the connections that are admitted now. `sweep`
        frees the memory.
        """
        self._gone.add(incarnation)
        admitted: list[tuple[bytes, Holder]] = []
        for client_id, waiting in list(self._waiting.items()):
            if waiting[0] == incarnation:
                del self._waiting[client_id]
                continue
            held = self._slots[slot_of(client_id)]
            old = held.get(client_id)
            if old is None or old[0] == incarnation:
                if old is not None:
                    self.not_confirmed(client_id, old[1])
                held[client_id] = self._waiting.pop(client_id)
                admitted.append((client_id, waiting))
        return admitted

    def sweep(self) -> Iterator[None]:
        """Free the memory of purged nodes, one slot in each step."""
        gone = frozenset(self._gone)
        if not gone:
            return
        for slot in list(self._slots):
            held = self._slots.get(slot, {})
            for client_id in [key for key, holder in held.items() if holder[0] in gone]:
                del held[client_id]
            yield
        self._gone -= gone
