"""Whether a node is ready, and why not; and that its status costs little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flockmq import compiled_modules
from flockmq.clock import SYSTEM
from flockmq.membership.readiness import CUT_OFF, STALE
from flockmq.node import management_view
from flockmq.node.management_view import ManagementView


@pytest.mark.parametrize(
    ("state", "unfit", "ready"),
    [
        ("starting", "", (False, "starting")),
        ("starting", STALE, (False, "starting")),
        ("ready", "", (True, "ready")),
        ("ready", CUT_OFF, (False, CUT_OFF)),
        ("draining", STALE, (True, "draining")),
    ],
)
def test_a_node_that_cannot_serve_is_not_ready_and_says_why(state: str, unfit: str, ready: tuple[bool, str]) -> None:
    cluster: Any = SimpleNamespace(readiness=SimpleNamespace(unfit=unfit))
    rlog: Any = None
    assert ManagementView(cluster, rlog, lambda: state, SYSTEM).ready() == ready


def test_a_status_looks_at_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    build = management_view._build()
    monkeypatch.setattr(compiled_modules, "hot_sources", lambda: pytest.fail("it looked at the files again"))
    assert management_view._build() == build
