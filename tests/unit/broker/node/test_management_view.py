"""Whether a node is ready, and why not; and that its status costs little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flockmq import compiled_modules
from flockmq.clock import SYSTEM
from flockmq.membership.frames import Status
from flockmq.membership.readiness import CUT_OFF, STALE
from flockmq.node import management_view
from flockmq.node.management_view import NO_REPLICANT, ManagementView
from flockmq.rlog.schema import NodeInfo


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


REPLICANT, CORE = NodeInfo("r-1", "replicant", "", 0, 0, ""), NodeInfo("c-2", "core", "", 0, 0, "")


@pytest.mark.parametrize(
    ("heard", "ready", "is_draining"),
    [
        ({}, (False, NO_REPLICANT), False),
        ({"c": (CORE, Status(ready=True))}, (False, NO_REPLICANT), False),
        ({"r": (REPLICANT, None)}, (False, NO_REPLICANT), False),
        ({"r": (REPLICANT, Status())}, (False, NO_REPLICANT), False),
        ({"r": (REPLICANT, Status(draining=True))}, (True, "ready"), True),
        ({"r": (REPLICANT, Status(draining=True)), "s": (REPLICANT, Status(ready=True))}, (True, "ready"), False),
    ],
)
def test_a_core_whose_clients_are_at_replicants_is_as_ready_as_these(
    heard: dict[str, tuple[NodeInfo, Status | None]], ready: tuple[bool, str], is_draining: bool
) -> None:
    cluster: Any = SimpleNamespace(
        readiness=SimpleNamespace(unfit=""),
        nodes_table={incarnation: info for incarnation, (info, _) in heard.items()},
        status_of=lambda incarnation: heard[incarnation][1],
    )
    rlog: Any = None
    view = ManagementView(cluster, rlog, lambda: "ready", SYSTEM)
    assert view.ready() == (True, "ready")
    assert not view.draining()
    view.needs_replicant = True
    assert view.ready() == ready
    assert view.draining() == is_draining


def test_a_status_looks_at_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    build = management_view._build()
    monkeypatch.setattr(compiled_modules, "hot_sources", lambda: pytest.fail("it looked at the files again"))
    assert management_view._build() == build
