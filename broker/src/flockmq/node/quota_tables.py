"""Listeners of the log's tables that quotas of users depend on. No I/O.

Invariant: a user's own limits count on this node from the moment on in which its tables have them.
"""

from __future__ import annotations

from typing import Self

import msgspec

from flockmq import bounds
from flockmq.quotas import Own, Quotas, StoredBytes
from flockmq.rlog.schema import DelayedMessage, OwnQuotas


class OwnLimits:
    """A listener of the table `quotas`. `quotas` is None in one that a bootstrap fills."""

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._filled: dict[bytes, Own] = {}

    def put(self, key: str, value: OwnQuotas, old: OwnQuotas | None) -> None:
        self._set(key, msgspec.structs.astuple(value))

    def delete(self, key: str, old: OwnQuotas) -> None:
        self._set(key, None)

    def _set(self, key: str, own: Own | None) -> None:
        user = key.encode()
        if self._quotas is not None:
            self._quotas.set_own(user, own)
        elif own is not None:
            self._filled[user] = own
        else:
            self._filled.pop(user, None)

    def fresh(self) -> Self:
        return type(self)(None)

    def swap(self, fresh: Self) -> None:
        assert self._quotas is not None, "only a live listener is swapped"
        self._quotas.swap_own(fresh._filled)


class DelayedBytes:
    """A listener of the table `delayed`: counts the bytes of each user."""

    def __init__(self, stored: StoredBytes) -> None:
        self._stored = stored

    def put(self, key: bytes, value: DelayedMessage, old: DelayedMessage | None) -> None:
        if old is not None:
            self.delete(key, old)
        if value.client_id or value.user:
            self._stored.change(value.user, delayed_bytes(value))

    def delete(self, key: bytes, old: DelayedMessage) -> None:
        if old.client_id or old.user:
            self._stored.change(old.user, -delayed_bytes(old))

    def fresh(self) -> Self:
        return type(self)(self._stored.fresh())

    def swap(self, fresh: Self) -> None:
        self._stored.swap(fresh._stored)


def delayed_bytes(row: DelayedMessage) -> int:
    return bounds.RETAINED_MESSAGE_BYTES + len(row.topic) + len(row.payload) + len(row.properties)
