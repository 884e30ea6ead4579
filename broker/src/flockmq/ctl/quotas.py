"""`flockmq ctl quotas`: limits and usage of users, and quotas of single users."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_list, add_verb, given
from flockmq.errors import ConfigError

KEYS: Final = {
    "max_sessions": "N",
    "max_queued_bytes": "SIZE",
    "max_subscriptions": "N",
    "max_subscription_bytes": "SIZE",
    "max_retained_bytes": "SIZE",
}


def add(verbs: Verbs) -> None:
    add_verb(verbs, "list", "the users who have most, and what one may have", _list)
    add_list(verbs, "the users with quotas of their own", _list_own, name="own")
    show = add_verb(verbs, "show", "one user's own", _show)
    put = add_verb(verbs, "set", "one user's own, in the place of those there are", _set)
    remove = add_verb(verbs, "remove", "one user's own: the settings' hold again", _remove)
    for verb in (show, put, remove):
        verb.add_argument("name", metavar="USER")
    for key, metavar in KEYS.items():
        example = "1000" if metavar == "N" else "64MB"
        put.add_argument(_option(key), metavar=metavar, help=f'for example {example}, or "infinity"')


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row with the limits, then one per user."""
    shown = api.ask("GET", "/quotas")
    yield {"quota_of_each": _limits(shown["limits"])}
    for row in shown["users"]:
        yield row | {"limits": _limits(row["limits"])} if "limits" in row else row


def _list_own(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/quotas")


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", path("quotas", options.name))


def _set(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    wanted = given(options, *KEYS)
    if not wanted:
        raise ConfigError(f"say at least one of {', '.join(map(_option, KEYS))}")
    yield api.ask("PUT", path("quotas", options.name), wanted)


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete(path("quotas", options.name))


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _limits(shown: Row) -> Row:
    return {kind: "infinity" if limit is None else limit for kind, limit in shown.items()}
