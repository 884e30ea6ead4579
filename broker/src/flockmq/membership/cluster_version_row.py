"""Follows the log's row with the cluster version."""

from __future__ import annotations

import logging
from typing import Final

from flockmq.default_callbacks import ignore
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.mesh import Mesh
from flockmq.rlog.row_dict import RowDict
from flockmq.rlog.schema import RaisedVersion

log: Final = logging.getLogger(__name__)


class ClusterVersionRow:
    """Invariant: after a raise there is no link to a node that doesn't speak the new version."""

    def __init__(self, version: ClusterVersion, mesh: Mesh) -> None:
        self.rows: Final = RowDict[str, RaisedVersion](self._raised, ignore)
        self._version = version
        self._mesh = mesh

    def _raised(self, _: str, raised: RaisedVersion) -> None:
        version = self._version
        if raised.version > version.newest:
            log.error(
                "the cluster is at version %d, and this node's release speaks %d at most: upgrade this node",
                raised.version,
                version.newest,
            )
        elif raised.version > version.current:
            log.info("the cluster is at version %d: all nodes speak it", raised.version)
        version.raised(raised.version)
        for link in self._mesh.links():
            if link.speaks < raised.version:
                link.close(f"it speaks version {link.speaks} at most, and the cluster is at {raised.version}")
