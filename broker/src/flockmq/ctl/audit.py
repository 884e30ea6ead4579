"""`flockmq ctl audit`: changes made through the REST API."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_list


def add(verbs: Verbs) -> None:
    add_list(verbs, "the last changes first", _list)


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/audit")
