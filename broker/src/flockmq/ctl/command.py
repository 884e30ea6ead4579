"""The command `flockmq ctl`: its arguments and its output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Final

import msgspec

from flockmq.ctl import (
    alarms,
    audit,
    bans,
    clients,
    cluster,
    evacuate,
    keys,
    quotas,
    rebalance,
    rlog,
    rules,
    sessions,
    settings,
    tables,
    users,
)
from flockmq.ctl.api import DEFAULT_URL, Api, Row
from flockmq.ctl.credentials import KEY_VARIABLE, check_text, key
from flockmq.ctl.verbs import Verbs

NOUNS: Final[tuple[tuple[str, str, Callable[[Verbs], None]], ...]] = (
    ("users", "who may connect with a password", users.add),
    ("rules", "who may do what", rules.add),
    ("bans", "who may not connect", bans.add),
    ("clients", "who is connected", clients.add),
    ("sessions", "what is kept for clients", sessions.add),
    ("quotas", "what users may have, and have of it", quotas.add),
    ("settings", "settings that are changed while nodes run", settings.add),
    ("keys", "who may use the REST API", keys.add),
    ("audit", "who changed what by the REST API", audit.add),
    ("alarms", "what somebody should look at", alarms.add),
    ("cluster", "its nodes", cluster.add),
    ("evacuate", "empty a node that goes on", evacuate.add),
    ("rebalance", "how many clients nodes send to others", rebalance.add),
    ("rlog", "the replicated log, by node and shard", rlog.add),
    ("tables", "what the log has made, for a backup", tables.add),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to `parser`, which is that of `flockmq ctl`."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"a node's management address (default: {DEFAULT_URL})")
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help=f"holds the key (default: ${KEY_VARIABLE})")
    parser.add_argument(
        "--cacert", type=Path, metavar="FILE", help="PEM: who signed its certificate (default: whom the system trusts)"
    )
    parser.add_argument(
        "--pin", type=Path, metavar="FILE", help="PEM: its very certificate, whatever name it has and whoever signed it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document a line, for programs")
    nouns = parser.add_subparsers(dest="noun", metavar="NOUN", required=True)
    for name, what, add in NOUNS:
        add(nouns.add_parser(name, help=what).add_subparsers(dest="verb", metavar="COMMAND", required=True))


def run(options: argparse.Namespace) -> int:
    """Run the command in `options`. Raises UserError."""
    for name, value in vars(options).items():
        if isinstance(value, str):
            check_text(value, f"{name}: {value!r}")
    api = Api(options.url, None if "keyless" in options else key(options.api_key_file), options.cacert, options.pin)
    try:
        rows = islice(options.do(api, options), getattr(options, "limit", None))
        if options.json:
            lines: Iterator[str] = (msgspec.json.encode(row).decode() for row in rows)
        else:
            lines = _tables(rows) if "in_columns" in options else map(_line, rows)
        for line in lines:
            print(line)
    except BrokenPipeError:  # as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  # nothing more is flushed there
    return 0


def _line(row: Row) -> str:
    return "\t".join(f"{name}={_shown(value)}" for name, value in row.items())


def _tables(rows: Iterator[Row]) -> Iterator[str]:
    """Format rows as tables. A new table begins where the columns change."""
    for number, (names, alike) in enumerate(groupby(rows, tuple)):
        if number:
            yield ""
        table = [[name.replace("_", " ") for name in names], *([_cell(row[name]) for name in names] for row in alike)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for cells in table:
            yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return _shown(",".join(value) or None) if isinstance(value, list) else _shown(value)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _printable(text: str) -> str:
    """Write what a terminal doesn't print as `\\n`, `\\x1b`, …: clients choose names, and would add lines."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
