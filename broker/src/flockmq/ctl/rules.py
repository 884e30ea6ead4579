"""`flockmq ctl rules`: access rules."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flockmq import strict_json
from flockmq.bounds import CONFIG_MAX_BYTES
from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_list, add_verb
from flockmq.errors import ConfigError


def add(verbs: Verbs) -> None:
    add_list(verbs, "all of them", _list)
    show = add_verb(verbs, "show", "those of one", _show)
    put = add_verb(verbs, "set", "from a file, in the place of those there are", _set)
    remove = add_verb(verbs, "remove", "those of one", _remove)
    for verb in (show, put, remove):
        verb.add_argument("of", choices=("username", "clientid", "all"))
        verb.add_argument("who", metavar="NAME", nargs="?", default="", help="not with all")
    put.add_argument(
        "--file", type=Path, required=True, metavar="FILE", help="TOML, or *.json: rules, as in docs/access.md"
    )


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/rules")


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", _whose(options))


def _set(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", _whose(options), _document(options.file))


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete(_whose(options))


def _whose(options: argparse.Namespace) -> str:
    if (options.of == "all") == bool(options.who):
        raise ConfigError('say whose rules: "all", or "username NAME", or "clientid ID"')
    return path("rules", options.of, *([options.who] if options.who else []))


def _document(file: Path) -> object:
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_MAX_BYTES + 1)
        return strict_json.decode(text) if file.suffix == ".json" else tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}") from None
