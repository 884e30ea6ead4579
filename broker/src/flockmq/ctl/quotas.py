"""`flockmq ctl quotas`: limits and usage of users."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_verb


def add(verbs: Verbs) -> None:
    add_verb(verbs, "list", "the users who have most, and what one may have", _list)


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row with the limits, then one per user."""
    shown = api.ask("GET", "/quotas")
    limits = {kind: "infinity" if limit is None else limit for kind, limit in shown["limits"].items()}
    yield {"quota_of_each": limits}
    yield from shown["users"]
