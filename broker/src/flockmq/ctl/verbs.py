"""Helpers to add verbs and their options to a noun of `flockmq ctl`."""

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
    """Add the verb `flockmq ctl NOUN name`, which calls `do`. `more` are extra values for its options."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what)
    parser.set_defaults(do=do, **more)
    return parser


def add_list(verbs: Verbs, what: str, do: Do, name: str = "list") -> argparse.ArgumentParser:
    """Add the verb `list`, or another one that lists, with the option --limit."""
    parser = add_verb(verbs, name, what, do)
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the first N (default: all)")
    return parser


def add_status(verbs: Verbs, do: Do) -> None:
    add_verb(verbs, "status", "how it is now; needs no key", do, keyless=True, in_columns=True)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of at least 1")
    return int(text)


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options among these names that the user gave."""
    return {name: given for name in names if (given := getattr(options, name)) is not None}


def seconds(options: argparse.Namespace) -> dict[str, object]:
    """The value of `--for` in seconds, if the user gave it. Raises ConfigError."""
    if options.duration is None:
        return {}
    return {"seconds": read(options.duration, _DURATION, "--for", is_text=True)}
