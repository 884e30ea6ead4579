"""`flockmq ctl users`: users in the log."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.credentials import password
from flockmq.ctl.verbs import Verbs, add_list, add_verb


def add(verbs: Verbs) -> None:
    add_list(verbs, "all of them", _list)
    show = add_verb(verbs, "show", "one of them", _show)
    new = add_verb(verbs, "add", "a new one; the password is asked for, or read from standard input", _add)
    asked = "another password; it is asked for, or read from standard input"
    change = add_verb(verbs, "password", asked, _set_password)
    superuser = add_verb(verbs, "superuser", "whether it may do everything", _set_superuser)
    disable = add_verb(
        verbs, "disable", "it can't connect until it is enabled, and is sent away", _disable, disabled=True
    )
    enable = add_verb(verbs, "enable", "it can connect again, with its password", _disable, disabled=False)
    remove = add_verb(verbs, "remove", "it can't connect any more", _remove)
    for verb in (show, new, change, superuser, disable, enable, remove):
        verb.add_argument("user_id", metavar="USER")
    new.add_argument("--superuser", action="store_true", help="it may do everything")
    new.add_argument("--hash", metavar="HASH", help="instead of a password: $argon2id$…, $2b$… or $pbkdf2-…")
    superuser.add_argument("answer", choices=("yes", "no"))


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/users")


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", path("users", options.user_id))


def _add(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    secret = {"password_hash": options.hash} if options.hash else {"password": password()}
    yield api.ask("POST", "/users", {"user_id": options.user_id, "is_superuser": options.superuser, **secret})


def _set_password(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", path("users", options.user_id), {"password": password()})


def _set_superuser(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", path("users", options.user_id), {"is_superuser": options.answer == "yes"})


def _disable(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", path("users", options.user_id), {"is_disabled": options.disabled})


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete(path("users", options.user_id))
