"""How far a rebalance is, by what the nodes of a cluster tell of it. Pure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from flockmq_operator.manifest import Manifest

NODES_MAX = 1024
"""Nodes in a status; a MqttCluster has 1,007 at most."""
NAMED_MAX = 5
"""Nodes that a sentence names."""

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


class Asked(msgspec.Struct, frozen=True):
    name: str
    state: str
    moved: int


class Row(msgspec.Struct, frozen=True):
    """One node; None: it doesn't tell."""

    node: str
    state: str
    clients: int | None = None
    planned: int | None = None
    """How many it would send to others by the present numbers."""
    left: int = 0
    asked: Asked | None = None


class Shown(msgspec.Struct, frozen=True):
    nodes: tuple[Row, ...]
    missing: tuple[str, ...] = ()


class Verdict(NamedTuple):
    phase: Phase
    reason: str
    message: str
    nodes: list[Manifest] | None = None
    """None: as they were."""


def plan(shown: Shown) -> Verdict:
    """What would be done."""
    nodes = [
        {"name": row.node, "clients": row.clients or 0, "moved": 0, "left": row.planned}
        for row in shown.nodes
        if row.planned is not None
    ]
    number = sum(row.planned or 0 for row in shown.nodes)
    return Verdict("Succeeded", "Planned", f"{number} clients would be moved; nothing was done", nodes[:NODES_MAX])


def runs_instead(name: str, shown: Shown) -> str:
    """Whose rebalance runs, if it isn't that of `name`; "" if none does."""
    asked = [row.asked for row in shown.nodes if row.asked and row.asked.state == "running"]
    return next((other.name or "somebody" for other in asked if other.name != name), "")


def progress(name: str, shown: Shown, before: Iterable[Manifest]) -> Verdict | None:
    """How far the rebalance `name` is; None: no node knows it. `before`: the nodes in the status so far, for those that
    have restarted since forget what they moved. One that gave up and has its share nevertheless hasn't failed."""
    rows = [(row, row.asked) for row in shown.nodes if row.asked and row.asked.name == name]
    if not rows:
        return None
    nodes = {node["name"]: {**node, "left": 0, "state": "restarted"} for node in before}
    for row, asked in rows:
        moved = max(asked.moved, nodes.get(row.node, {}).get("moved", 0))
        counts = {"clients": row.clients or 0, "moved": moved, "left": row.left}
        nodes[row.node] = {"name": row.node, **counts, "state": asked.state}
    gave_up = [row.node for row, asked in rows if asked.state == "gave_up" and row.planned != 0]
    stopped = [row.node for row, asked in rows if asked.state == "stopped" and row.state != "draining"]
    moved, left = (sum(node[field] for node in nodes.values()) for field in ("moved", "left"))
    listed = [nodes[name] for name in sorted(nodes)][:NODES_MAX]
    if any(asked.state == "running" for _, asked in rows):
        return Verdict("Running", "Moving", f"{moved} clients were moved, {left} are to go", listed)
    if gave_up:
        sentence = f"{moved} clients were moved, but too many of them came back to {said(gave_up)}"
        advice = "see whether the Service leads to every node that takes clients, without session affinity"
        return Verdict("Failed", "GaveUp", f"{sentence}: {advice}", listed)
    if stopped:
        return Verdict("Failed", "Stopped", f"somebody stopped it at {said(stopped)}; {moved} were moved", listed)
    return Verdict("Succeeded", "Balanced", f"{moved} clients were moved; each node has its share", listed)


def said(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
