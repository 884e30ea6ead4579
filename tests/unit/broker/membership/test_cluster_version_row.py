"""What follows a raise of the cluster's version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.cluster_version_row import ClusterVersionRow
from flockmq.rlog.schema import RaisedVersion


def test_a_raise_ends_links_to_nodes_that_it_leaves_behind() -> None:
    version, old, new = ClusterVersion(), MagicMock(speaks=1), MagicMock(speaks=2)
    mesh: Any = SimpleNamespace(links=lambda: [old, new])
    ClusterVersionRow(version, mesh).rows.put("cluster", RaisedVersion(2), None)
    assert version.at_least(2)
    old.close.assert_called_once()
    new.close.assert_not_called()


def test_a_raise_beyond_what_this_node_speaks_is_told(caplog: pytest.LogCaptureFixture) -> None:
    version, mesh = ClusterVersion(), MagicMock()
    mesh.links.return_value = []
    ClusterVersionRow(version, mesh).rows.put("cluster", RaisedVersion(version.newest + 1), None)
    assert not version.at_least(2)
    assert "upgrade this node" in caplog.text
