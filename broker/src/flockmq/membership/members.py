"""The members of the cluster, from this node's tables."""

from __future__ import annotations

from typing import Self

from flockmq.membership.reachability import CORE_ROLES
from flockmq.rlog.row_dict import RowDict
from flockmq.rlog.schema import NodeInfo


class Members(RowDict[str, NodeInfo]):
    """Incarnation → NodeInfo."""

    _cores: tuple[str, ...] | None = None
    """Cached, because it is read many times a second and changes rarely."""

    @property
    def cores(self) -> tuple[str, ...]:
        if self._cores is None:
            self._cores = tuple(incarnation for incarnation, info in self.items() if info.role in CORE_ROLES)
        return self._cores

    def put(self, key: str, value: NodeInfo, old: NodeInfo | None) -> None:
        self._cores = None
        super().put(key, value, old)

    def delete(self, key: str, old: NodeInfo) -> None:
        self._cores = None
        super().delete(key, old)

    def swap(self, fresh: Self) -> None:
        self._cores = None
        super().swap(fresh)
