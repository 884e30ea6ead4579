"""`flockmq ctl cluster`: the nodes of the cluster, and which cores are taken off it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_status, add_verb

FIRST: Final = (
    *("role", "version", "state", "leads", "connections", "slots"),
    *("replicants", "writes_through", "unreachable"),
)
"""The first columns, after the name. Other fields come after these."""
_FOLDED: Final = frozenset(("heard", "ready", "draining", "stale", "hears_redis"))
"""Fields that are summarized in the column `state`."""
_LEFT_OUT: Final = frozenset(
    (
        *("name", "incarnation", "host", "lag_entries", "takes_clients", "connect_wait_ms"),
        *("rebalancing", "durable_clients", "messages_per_s", "has_too_much"),
    )
)


def add(verbs: Verbs) -> None:
    add_status(verbs, _status)
    add_verb(verbs, "leave", "have the core at --url hand over all that it has, leave for good, and end", _leave)
    forget = add_verb(verbs, "forget", "take a dead core off the cluster", _forget)
    forget.add_argument("node", metavar="NODE", help="its name")


def _status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row per node, then one for the cluster."""
    whole = api.ask("GET", "/cluster", version="v5")
    for node in whole["nodes"]:
        known = {**node, "state": state(node)}
        others = [name for name in known if name not in {*FIRST, *_FOLDED, *_LEFT_OUT}]
        yield {"node": node["name"], **{name: known[name] for name in (*FIRST, *others)}}
    yield {name: whole[name] for name in ("told_by", "stale", "leader", "slots_without_owner")}


def _leave(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("POST", "/leave")


def _forget(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("DELETE", path("cores", options.node))


def state(node: Row) -> str:
    if not node["heard"]:
        return "unheard"
    if node["draining"]:
        return "draining"
    if node.get("hears_redis") is False:
        return "ready, without Redis" if node["ready"] else "cut off from Redis"
    if node["ready"]:
        return "ready"
    return "stale" if node.get("stale") else "starting"
