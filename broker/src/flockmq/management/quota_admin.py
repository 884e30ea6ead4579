"""Quotas of single users, which take precedence over the settings': this checks them and writes the log. No node asks
whether there is such a user: quotas belong to a user name, whoever lets it in.

A change returns when this node's tables have it. Other nodes get it when they read the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.auth.admin import Invalid, Missing, Page, Unused
from flockmq.auth.name_pages import page_of
from flockmq.config.schema import QuotasSettings
from flockmq.management.view import Limit, OwnQuotasShown, Unavailable
from flockmq.quotas import INFINITE
from flockmq.rlog.entry import Op
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, QUOTAS, OwnQuotas
from flockmq.rlog.sorted_keys import SortedKeys

KEYS: Final = OwnQuotas.__struct_fields__


class QuotaAdmin:
    """`may_write` tells whether all nodes know this table, `are_counted` whether anybody has quotas."""

    def __init__(self, rlog: Rlog, may_write: Callable[[], bool], are_counted: Callable[[], bool]) -> None:
        self._rlog = rlog
        self._may_write = may_write
        self._are_counted = are_counted
        self._names: SortedKeys[str] = SortedKeys()
        rlog.on_change(QUOTAS.name, self._names)

    def page(self, after: str | None, limit: int) -> Page[OwnQuotasShown]:
        """Raises Invalid."""
        try:
            names, end = page_of(self._names, after, limit, str, str)
        except ValueError as error:
            raise Invalid("after", str(error)) from None
        rows = [_shown(name, own) for name in names if (own := self._rlog.tables.quotas.get(name)) is not None]
        return Page(rows, len(self._names), end)

    def of(self, name: str) -> OwnQuotasShown:
        """Raises Missing."""
        own = self._rlog.tables.quotas.get(name)
        if own is None:
            raise Missing(f"user {name!r} has no quotas of its own; GET /api/v1/quotas shows what each may have")
        return _shown(name, own)

    async def put(self, name: str, settings: QuotasSettings) -> OwnQuotasShown:
        """Set the user's quotas, in place of any that it has. Raises Unused, Invalid, Unavailable, StorageError."""
        own = OwnQuotas(*(getattr(settings, key) for key in KEYS))
        if own == OwnQuotas():
            raise Invalid("quotas", f"say at least one of {', '.join(KEYS)}; DELETE takes all of them back")
        if not self._are_counted():
            raise Unused(
                "clients have no users here: add an authenticator to authentication.chain, "
                'or set mqtt.client_id_binding = "user"'
            )
        if not self._may_write():
            why = "some nodes know of no quotas of single users yet: upgrade all of them"
            raise Unavailable(f"{why}, and wait until cluster.version_settle is over")
        await self._write(QUOTAS.put(name, own))
        return _shown(name, own)

    async def remove(self, name: str) -> None:
        """The settings' quotas hold for the user again. Raises Missing, StorageError."""
        self.of(name)
        await self._write(QUOTAS.delete(name))

    async def _write(self, op: Op) -> None:
        await self._rlog.write(AUTH, [op])


def _shown(name: str, own: OwnQuotas) -> OwnQuotasShown:
    said: dict[str, int] = {key: limit for key in KEYS if (limit := getattr(own, key)) is not None}
    limits: dict[str, Limit] = {key: "infinity" if limit >= INFINITE else limit for key, limit in said.items()}
    return OwnQuotasShown(name=name, **limits)
