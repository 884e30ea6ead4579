"""When delayed messages are due, and whose turn it is. No I/O.

Users take turns: of a million messages that one user has due at once, others' wait for one turn. A user's own are in
the order in which they are due. Without users all are one user's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple, Self

from sortedcontainers import SortedSet

from flockmq.bounds import DELAYED_OF_TURN_MAX
from flockmq.rlog.schema import DelayedMessage
from flockmq.rlog.sorted_keys import SortedKeys


class Due(NamedTuple):
    user: bytes
    key: bytes


class Schedule(SortedKeys[bytes]):
    """Listens to `delayed`: its keys, ordered by when they are due, all and by user."""

    def __init__(self) -> None:
        super().__init__()
        self.sooner = asyncio.Event()
        """Set when it is time to look again: a new message is due before all others, or one was accepted."""
        self._of: dict[bytes, SortedSet[bytes]] = {}
        self._firsts: SortedSet[tuple[bytes, bytes]] = SortedSet()
        """The first key of each user, and the user."""
        self._turn = b"", b""
        """Whose turn was the last: where it stands among `_firsts`."""

    def first_ms(self, besides: Container[bytes] = (), skipped: Container[bytes] = ()) -> int | None:
        """When the first one is due that isn't one of `besides`, nor of a user of `skipped`."""
        found: bytes | None = None
        for first, user in self._firsts:
            if found is not None and found < first:
                break
            if user not in skipped:
                key = next((key for key in self._of[user] if key not in besides), None)
                found = key if found is None or (key is not None and key < found) else found
        return None if found is None else int.from_bytes(found[:8], "big")

    def due(
        self, now_ms: int, limit: int, tried: Mapping[bytes, bytes] | None = None, skipped: Container[bytes] = ()
    ) -> list[Due]:
        """At most `limit` due messages, users in turn, behind the one who had the last turn. `tried`: of users, the
        last key that isn't wanted any more. Of the users of `skipped` there are none."""
        end = now_ms.to_bytes(8, "big") + b"\xff" * 9
        users, found = self._users_in_turn(end), list[Due]()
        again = deque[tuple[bytes, Iterator[bytes]]]()
        while len(found) < limit:
            if (entry := next(users, None)) is not None:
                user = entry[1]
                if user in skipped:
                    continue
                keys = self._of[user].irange((tried or {}).get(user, b""), end, (False, True))
            elif again:
                entry, (user, keys) = None, again.popleft()
            else:
                break
            taken = [Due(user, key) for key in islice(keys, min(DELAYED_OF_TURN_MAX, limit - len(found)))]
            if entry is not None and taken:
                self._turn = entry
            if len(taken) == DELAYED_OF_TURN_MAX:
                again.append((user, keys))
            found += taken
        return found

    def _users_in_turn(self, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Those with a key up to `end`."""
        last = min(self._turn, (end, b""))
        behind = self._firsts.irange(last, (end, b""), (False, True))
        return chain(behind, self._firsts.irange(None, last))

    def put(self, key: bytes, value: object, old: object) -> None:
        super().put(key, value, old)
        if old is None and isinstance(value, DelayedMessage):
            of_user = self._of.setdefault(value.user, SortedSet())
            before = of_user[0] if of_user else None
            of_user.add(key)
            self._moved(value.user, before)
        if self._keys[0] == key:
            self.sooner.set()

    def delete(self, key: bytes, old: object) -> None:
        super().delete(key, old)
        if isinstance(old, DelayedMessage) and (of_user := self._of.get(old.user)) is not None:
            before = of_user[0]
            of_user.discard(key)
            self._moved(old.user, before)

    def _moved(self, user: bytes, before: bytes | None) -> None:
        """`before`: the user's first key until now."""
        of_user = self._of[user]
        first = of_user[0] if of_user else None
        if first == before:
            return
        if before is not None:
            self._firsts.discard((before, user))
        if first is None:
            del self._of[user]
        else:
            self._firsts.add((first, user))

    def swap(self, fresh: Self) -> None:
        super().swap(fresh)
        self._of, self._firsts = fresh._of, fresh._firsts
        self.sooner.set()
