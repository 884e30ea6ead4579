"""The tables of the log as a core's disk has them, for a backup: only cores have any."""

from __future__ import annotations

from typing import BinaryIO

from flockmq.auth.admin import Missing
from flockmq.management.view import TablesView, Unavailable
from flockmq.redis.errors import StorageError
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS


class SavedTables(TablesView):
    def __init__(self, rlog: Rlog) -> None:
        self._rlog = rlog

    async def saved(self, shard: str) -> BinaryIO:
        if shard not in SHARDS:
            raise Missing(f"there is no shard {shard!r}; there are {', '.join(SHARDS)}")
        if self._rlog.core is None:
            raise Unavailable("this node is a replicant, and only cores save the tables: ask a core")
        try:
            return await self._rlog.core.saved(shard)
        except StorageError as error:
            raise Unavailable(str(error)) from None
        except OSError as error:
            raise Unavailable(f"the snapshot of shard {shard} can't be written or read: {error.strerror}") from None
