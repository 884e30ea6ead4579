"""`flockmq ctl settings`: settings that are changed while nodes run, in all nodes at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from flockmq import strict_json
from flockmq.config.hot import leaves
from flockmq.ctl.api import Api, CtlError, Row
from flockmq.ctl.credentials import check_text
from flockmq.ctl.verbs import Verbs, add_verb
from flockmq.errors import ConfigError


def add(verbs: Verbs) -> None:
    add_verb(verbs, "show", "what holds at this node, and what of it is changed", _show, in_columns=True)
    put = add_verb(verbs, "set", "in all nodes, without a restart", _set, in_columns=True)
    put.add_argument("changes", metavar="PATH=VALUE", nargs="+", help="for example log.level=debug")
    unset = add_verb(verbs, "unset", "as each node's own configuration has it", _unset, in_columns=True)
    unset.add_argument("paths", metavar="PATH", nargs="+", help="a key, or a section with all its keys")
    add_verb(verbs, "history", "the last revisions, the newest first: who, when, what", _history)
    diff = add_verb(verbs, "diff", "what has changed since a revision", _diff, in_columns=True)
    diff.add_argument("revision", metavar="REV", type=int, nargs="?", help="(default: the one before the newest)")
    restore = add_verb(verbs, "restore", "as they were at a revision, 0 for none changed", _restore, in_columns=True)
    restore.add_argument("revision", metavar="REV", type=int)


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _rows(api.ask("GET", "/settings"))


def _set(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _changed(api.ask("PATCH", "/settings", _patch([_change(text) for text in options.changes])))


def _unset(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _changed(api.ask("PATCH", "/settings", _patch([(path, None) for path in options.paths])))


def _history(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    for row in api.ask("GET", "/settings/history")["data"]:
        yield {name: row[name] for name in ("revision", "at", "by", "patch")}


def _diff(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    documents = {row["revision"]: row["document"] for row in api.ask("GET", "/settings/history")["data"]}
    newest = max(documents, default=0)
    since = max(0, newest - 1) if options.revision is None else options.revision
    documents.setdefault(0, {})
    if since not in documents:
        raise CtlError(f"there is no revision {since} any more; known: {', '.join(map(str, sorted(documents)))}")
    before, now = dict(leaves(documents[since])), dict(leaves(documents[newest]))
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            yield {"path": path, f"revision_{since}": before.get(path), f"revision_{newest}": now.get(path)}


def _restore(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _changed(api.ask("PUT", "/settings/revision", {"revision": options.revision}))


def _rows(shown: Row) -> Iterator[Row]:
    """A row about the revision, then one for each key."""
    _tell_fault(shown)
    yield {name: shown[name] for name in ("revision", "at", "by")}
    changed = dict(leaves(shown["document"]))
    for path, value in leaves(shown["settings"]):
        yield {"path": path, "value": value, "changed": path in changed}


def _changed(shown: Row) -> Iterator[Row]:
    """Only the keys that are changed now."""
    return (row for row in _rows(shown) if row.get("changed", True))


def _tell_fault(shown: Row) -> None:
    if shown["fault"]:
        print(f"flockmq ctl: this node doesn't apply all of it: {shown['fault']}", file=sys.stderr)
    for path in shown["unused"]:
        print(f"flockmq ctl: {path} changes nothing at this node", file=sys.stderr)


def _change(text: str) -> tuple[str, object]:
    """PATH=VALUE; the value is JSON, or else a text. Raises ConfigError."""
    path, is_there, value = text.partition("=")
    if not is_there or not path:
        raise ConfigError(f"{text!r} must be PATH=VALUE, for example log.level=debug")
    if value == "null":
        raise ConfigError(f"{path}: null is no value; to take a change back say: unset {path}")
    check_text(value, path)
    try:
        return path, strict_json.decode(value)
    except strict_json.DuplicateKey as error:
        raise ConfigError(f"{path}: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        return path, value


def _patch(changes: Sequence[tuple[str, object]]) -> Mapping[str, Any]:
    """The merge patch of these paths. Raises ConfigError."""
    patch: dict[str, Any] = {}
    for path, value in changes:
        check_text(path, f"PATH: {path!r}")
        *sections, last = path.split(".")
        below = patch
        for section in sections:
            inner = below.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{path}: stands beside a section that it is in; say one of them")
            below = inner
        if last in below:
            raise ConfigError(f"{path}: is said twice; say it once")
        below[last] = value
    return patch
