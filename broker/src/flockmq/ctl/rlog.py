"""`flockmq ctl rlog`: the state of the log, by node and shard."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_status

COLUMNS: Final = {
    "lag": "lag_entries",
    "lag_s": "lag_seconds",
    "bootstraps": "bootstraps",
    "took_s": "bootstrap_time_seconds",
    "rows": "bootstrap_num_keys",
    "unapplied": "message_queue_len",
    "to_replay": "replayq_len",
    "written": "last_intercepted_trans",
    "to_write": "server_mql",
}
"""Column → field of `/api/v5/rlog/nodes`."""


def add(verbs: Verbs) -> None:
    add_status(verbs, _status)


def _status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row per node and shard. A table shows only the sum of the digests, --json all fields."""
    for node in api.ask("GET", "/rlog/nodes", version="v5")["data"]:
        for shard, log in (node["shards"] or {"-": None}).items():
            row = _row(log) if not options.json else log or {}
            yield {"node": node["name"], "role": node["role"], "shard": shard, **row}


def _row(log: Row | None) -> Row:
    """`log` is None if the node didn't answer."""
    if log is None:
        return dict.fromkeys(("applied", *COLUMNS, "digest"))
    digest = sum(int(digest, 16) for digest in log["digests"].values()) % 2**64
    shown = {column: log[name] for column, name in COLUMNS.items()}
    return {"applied": log["applied"], **shown, "digest": f"{digest:016x}"}
