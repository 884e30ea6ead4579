"""How a noun of `flockmq ctl` gets its verbs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from flockmq.config.conversion import read
from flockmq.config.values import Kind
from flockmq.ctl.api import Api, Row

Verbs = Any  # argparse's own type is private
Do: TypeAlias = Callable[[Api, argparse.Namespace], Iterator[Row]]

_DURATION: Final = Annotated[float, Meta(ge=1.0, le=3.2e9), Kind.DURATION]


def add_verb(verbs: Verbs, name: str, what: str, do: Do, **more: object) -> argparse.ArgumentParser:
    """`flockmq ctl NOUN name`: `do` does it, and is told `more` by the options."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what)
    parser.set_defaults(do=do, **more)
    return parser


def add_list(verbs: Verbs, what: str, do: Do) -> argparse.ArgumentParser:
    """Of what there may be many."""
    parser = add_verb(verbs, "list", what, do)
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the first N (default: all)")
    return parser


def add_status(verbs: Verbs, do: Do) -> None:
    add_verb(verbs, "status", "how it is now; needs no key", do, keyless=True, in_columns=True)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of at least 1")
    return int(text)


def said(options: argparse.Namespace, *names: str) -> dict[str, str]:
    """What the user said of these options."""
    return {name: said for name in names if (said := getattr(options, name)) is not None}


def seconds(options: argparse.Namespace) -> dict[str, object]:
    """What `--for` says, if the user said it. Raises ConfigError."""
    if options.duration is None:
        return {}
    return {"seconds": read(options.duration, _DURATION, "--for", is_text=True)}
