"""`flockmq ctl`: users, rules, bans, clients, sessions and alarms of a running cluster, and how it is, by a REST API.

A password comes from a prompt, or from standard input where that is no terminal; the key from a file, or from
FLOCKMQ_API_KEY. Neither is an argument, which everybody on the machine can read.
"""

from __future__ import annotations

import argparse
import getpass
import http.client
import os
import ssl
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Meta

from flockmq.bounds import AUTH_PAGE_MAX, CONFIG_MAX_BYTES, MANAGEMENT_REQUEST_LINE_MAX_BYTES, SECRET_MAX_BYTES
from flockmq.config.values import Kind, Secret, http_url_fault, read
from flockmq.errors import ConfigError, UserError

DEFAULT_URL: Final = "http://127.0.0.1:18083"
KEY_VARIABLE: Final = "FLOCKMQ_API_KEY"
PATIENCE_S: Final = 30.0
BAN_KINDS: Final = (
    "client",
    "clientid",
    "username",
    "peerhost",
    "clientid_pattern",
    "username_pattern",
    "peerhost_net",
)

_PATH_MAX_BYTES: Final = MANAGEMENT_REQUEST_LINE_MAX_BYTES - 128
"""The rest of the line is the method's, the API's and HTTP's."""
_DURATION: Final = Annotated[float, Meta(ge=1.0, le=3.2e9), Kind.DURATION]
Row = Mapping[str, Any]
Do: TypeAlias = "Callable[[Api, argparse.Namespace], Iterator[Row]]"


class CtlError(UserError):
    """The node can't be reached, or says no."""


# --- the arguments --------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`parser` is the one of `flockmq ctl`."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"a node's management address (default: {DEFAULT_URL})")
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help=f"holds the key (default: ${KEY_VARIABLE})")
    parser.add_argument(
        "--cacert",
        type=Path,
        metavar="FILE",
        help="PEM: who signed its certificate (default: whom the system trusts)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document a line, for programs")
    nouns = parser.add_subparsers(dest="noun", metavar="NOUN", required=True)
    _add_users(nouns.add_parser("users", help="who may connect with a password").add_subparsers(**_VERBS))
    _add_rules(nouns.add_parser("rules", help="who may do what").add_subparsers(**_VERBS))
    _add_bans(nouns.add_parser("bans", help="who may not connect").add_subparsers(**_VERBS))
    _add_clients(nouns.add_parser("clients", help="who is connected").add_subparsers(**_VERBS))
    _add_sessions(nouns.add_parser("sessions", help="what is kept for clients").add_subparsers(**_VERBS))
    _add_quotas(nouns.add_parser("quotas", help="what users have of theirs").add_subparsers(**_VERBS))
    _add_keys(nouns.add_parser("keys", help="who may use the REST API").add_subparsers(**_VERBS))
    _add_audit(nouns.add_parser("audit", help="who changed what by the REST API").add_subparsers(**_VERBS))
    _add_alarms(nouns.add_parser("alarms", help="what somebody should look at").add_subparsers(**_VERBS))
    _add_status(nouns.add_parser("cluster", help="its nodes"), _cluster_status)
    _add_status(nouns.add_parser("rlog", help="the replicated log, by node and shard"), _rlog_status)


_VERBS: Final[dict[str, Any]] = {"dest": "verb", "metavar": "COMMAND", "required": True}
Verbs = Any  # argparse's own type is private


def _verb(verbs: Verbs, name: str, what: str, do: Do, **more: object) -> argparse.ArgumentParser:
    """`flockmq ctl NOUN name`: `do` does it, and is told `more` by the options."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what)
    parser.set_defaults(do=do, **more)
    return parser


def _list(verbs: Verbs, what: str, do: Do) -> argparse.ArgumentParser:
    """Of what there may be many."""
    parser = _verb(verbs, "list", what, do)
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the first N (default: all)")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of at least 1")
    return int(text)


def _add_users(verbs: Verbs) -> None:
    _list(verbs, "all of them", _list_users)
    show = _verb(verbs, "show", "one of them", _show_user)
    add = _verb(verbs, "add", "a new one; the password is asked for, or read from standard input", _add_user)
    password = _verb(verbs, "password", "another password; it is asked for, or read from standard input", _set_password)
    superuser = _verb(verbs, "superuser", "whether it may do everything", _set_superuser)
    disable = _verb(
        verbs, "disable", "it can't connect until it is enabled, and is sent away", _disable_user, disabled=True
    )
    enable = _verb(verbs, "enable", "it can connect again, with its password", _disable_user, disabled=False)
    remove = _verb(verbs, "remove", "it can't connect any more", _remove_user)
    for verb in (show, add, password, superuser, disable, enable, remove):
        verb.add_argument("user_id", metavar="USER")
    add.add_argument("--superuser", action="store_true", help="it may do everything")
    add.add_argument("--hash", metavar="HASH", help="instead of a password: $argon2id$…, $2b$… or $pbkdf2-…")
    superuser.add_argument("answer", choices=("yes", "no"))


def _add_rules(verbs: Verbs) -> None:
    _list(verbs, "all of them", _list_rules)
    show = _verb(verbs, "show", "those of one", _show_rules)
    put = _verb(verbs, "set", "from a file, in the place of those there are", _set_rules)
    remove = _verb(verbs, "remove", "those of one", _remove_rules)
    for verb in (show, put, remove):
        verb.add_argument("of", choices=("username", "clientid", "all"))
        verb.add_argument("who", metavar="NAME", nargs="?", default="", help="not with all")
    put.add_argument(
        "--file", type=Path, required=True, metavar="FILE", help="TOML, or *.json: rules, as in docs/access.md"
    )


def _add_bans(verbs: Verbs) -> None:
    _list(verbs, "all of them", _list_bans)
    add = _verb(verbs, "add", "who is connected is sent away", _add_ban)
    remove = _verb(verbs, "remove", "it may connect again", _remove_ban)
    for verb in (add, remove):
        verb.add_argument("kind", choices=BAN_KINDS)
        verb.add_argument("who", metavar="WHO")
    add.add_argument("--for", dest="duration", metavar="DURATION", help="for example 15m or 2h (default: for good)")
    add.add_argument("--reason", default="", metavar="TEXT")


def _add_clients(verbs: Verbs) -> None:
    several = _list(verbs, "all of them, or those that are like this", _list_clients)
    several.add_argument("--clientid", metavar="PATTERN", help="for example 'sensor-*'")
    several.add_argument("--username", metavar="PATTERN")
    several.add_argument("--listener", metavar="PATTERN", help="for example 'ssl:*'")
    several.add_argument("--node", metavar="NAME", help="connected there")
    several.add_argument("--peerhost", metavar="ADDRESS", help="or a network, for example 10.0.0.0/8")
    show = _verb(verbs, "show", "one of them", _show_client)
    kick = _verb(verbs, "kick", "end its connection; its session goes on, if it lasts", _kick_client)
    for verb in (show, kick):
        verb.add_argument("client_id", metavar="CLIENTID")


def _add_sessions(verbs: Verbs) -> None:
    several = _list(verbs, "those that outlive their connections", _list_sessions)
    several.add_argument("--clientid", metavar="PATTERN", help="for example 'sensor-*'")
    several.add_argument("--connected", choices=("yes", "no"), help="whether their clients are there")
    show = _verb(verbs, "show", "any of them, and what it is subscribed to", _show_session)
    show.add_argument("client_id", metavar="CLIENTID")
    remove = _verb(
        verbs, "remove", "end a client's session, one that can't be read too, and its connection", _remove_session
    )
    remove.add_argument("client_id", metavar="CLIENTID")


def _add_keys(verbs: Verbs) -> None:
    _verb(verbs, "list", "all of them, without what they are", _list_keys)
    add = _verb(verbs, "add", "a new one; what it is is printed this once", _add_key)
    remove = _verb(verbs, "remove", "it opens nothing any more", _remove_key)
    for verb in (add, remove):
        verb.add_argument("name", metavar="NAME")
    add.add_argument(
        "--role", choices=("viewer", "operator", "admin"), required=True, help="sees; ends what is there; all"
    )
    add.add_argument("--for", dest="duration", metavar="DURATION", help="for example 30d (default: for good)")


def _add_audit(verbs: Verbs) -> None:
    _list(verbs, "the last changes first", _list_audit)


def _add_quotas(verbs: Verbs) -> None:
    _verb(verbs, "list", "the users who have most, and what one may have", _list_quotas)


def _add_alarms(verbs: Verbs) -> None:
    _verb(verbs, "list", "all of them, the oldest first; needs no key", _list_alarms, keyless=True)
    end = _verb(verbs, "end", "somebody has looked at it", _end_alarm)
    end.add_argument("name", metavar="NAME")


def _add_status(noun: argparse.ArgumentParser, do: Do) -> None:
    verbs = noun.add_subparsers(**_VERBS)
    _verb(verbs, "status", "how it is now; needs no key", do, keyless=True, in_columns=True)


def run(options: argparse.Namespace) -> int:
    """What `options` ask for. Raises UserError."""
    for name, value in vars(options).items():
        if isinstance(value, str):
            _check_text(value, f"{name}: {value!r}")
    api = Api(options.url, None if "keyless" in options else _key(options.api_key_file), options.cacert)
    try:
        rows = islice(options.do(api, options), getattr(options, "limit", None))
        if options.json:
            lines: Iterator[str] = (msgspec.json.encode(row).decode() for row in rows)
        else:
            lines = _tables(rows) if "in_columns" in options else map(_line, rows)
        for line in lines:
            print(line)
    except BrokenPipeError:  # of `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  # nothing more is flushed there
    return 0


def _line(row: Row) -> str:
    return "\t".join(f"{name}={_shown(value)}" for name, value in row.items())


def _tables(rows: Iterator[Row]) -> Iterator[str]:
    """Rows in columns; where the names of the columns change another table begins."""
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
    return (",".join(value) or "-") if isinstance(value, list) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- users ----------------------------------------------------------------------------------------------------------


def _list_users(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/users")


def _show_user(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", _path("users", options.user_id))


def _add_user(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    secret = {"password_hash": options.hash} if options.hash else {"password": _password()}
    yield api.ask("POST", "/users", {"user_id": options.user_id, "is_superuser": options.superuser, **secret})


def _set_password(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", _path("users", options.user_id), {"password": _password()})


def _set_superuser(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", _path("users", options.user_id), {"is_superuser": options.answer == "yes"})


def _disable_user(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", _path("users", options.user_id), {"is_disabled": options.disabled})


def _remove_user(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    api.ask("DELETE", _path("users", options.user_id))
    return iter(())


# --- rules ----------------------------------------------------------------------------------------------------------


def _list_rules(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/rules")


def _show_rules(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", _whose(options))


def _set_rules(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("PUT", _whose(options), _document(options.file))


def _remove_rules(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    api.ask("DELETE", _whose(options))
    return iter(())


def _whose(options: argparse.Namespace) -> str:
    if (options.of == "all") == bool(options.who):
        raise ConfigError('say whose rules: "all", or "username NAME", or "clientid ID"')
    return _path("rules", options.of, *([options.who] if options.who else []))


def _document(file: Path) -> object:
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_MAX_BYTES + 1)
        return msgspec.json.decode(text) if file.suffix == ".json" else tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}") from None


# --- bans -----------------------------------------------------------------------------------------------------------


def _list_bans(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/bans")


def _add_ban(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    asked: dict[str, object] = {"as": options.kind, "who": options.who, "by": "ctl", "reason": options.reason}
    if options.duration is not None:
        asked["seconds"] = read(options.duration, _DURATION, "--for", is_text=True)
    yield api.ask("POST", "/bans", asked)


def _remove_ban(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    api.ask("DELETE", _path("bans", options.kind, options.who))
    return iter(())


# --- clients and sessions -------------------------------------------------------------------------------------------


def _list_clients(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/clients", _said(options, "clientid", "username", "listener", "node", "peerhost"))


def _show_client(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", _path("clients", options.client_id))


def _kick_client(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _end(api, "clients", options.client_id, "kick")


def _list_sessions(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/sessions", _said(options, "clientid", "connected"))


def _show_session(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """A row of the session, then one a subscription."""
    path, after = _path("sessions", options.client_id), 0
    while True:
        shown = dict(api.ask("GET", f"{path}?{urlencode({'limit': AUTH_PAGE_MAX, 'after': after})}"))
        filters, go_on = shown.pop("filters"), shown.pop("next")
        if after == 0:
            yield shown
        yield from filters
        if go_on is None:
            return
        after = go_on


def _said(options: argparse.Namespace, *names: str) -> dict[str, str]:
    return {name: said for name in names if (said := getattr(options, name)) is not None}


def _remove_session(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _end(api, "sessions", options.client_id, "end")


def _end(api: Api, noun: str, client_id: str, verb: str) -> Iterator[Row]:
    path = _path(noun, client_id)
    if len(path) <= _PATH_MAX_BYTES:
        api.ask("DELETE", path)
    else:
        api.ask("POST", f"/{noun}/{verb}", {"clientid": client_id})
    return iter(())


# --- keys, and what was done with them ------------------------------------------------------------------------------


def _list_keys(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield from api.ask("GET", "/keys")["data"]


def _add_key(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    asked: dict[str, object] = {"name": options.name, "role": options.role}
    if options.duration is not None:
        asked["seconds"] = read(options.duration, _DURATION, "--for", is_text=True)
    yield api.ask("POST", "/keys", asked)


def _remove_key(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    api.ask("DELETE", _path("keys", options.name))
    return iter(())


def _list_audit(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/audit")


# --- quotas ---------------------------------------------------------------------------------------------------------


def _list_quotas(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """A row of what one user may have, then one a user."""
    shown = api.ask("GET", "/quotas")
    limits = {kind: "infinity" if limit is None else limit for kind, limit in shown["limits"].items()}
    yield {"quota_of_each": limits}
    yield from shown["users"]


# --- alarms ---------------------------------------------------------------------------------------------------------


def _list_alarms(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    for alarm in api.rows("/alarms", version="v5"):
        since = datetime.fromtimestamp(alarm["since_s"], UTC)
        yield {"name": alarm["name"], "since": since.isoformat(timespec="seconds"), "text": alarm["text"]}


def _end_alarm(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    api.ask("DELETE", _path("alarms", options.name), version="v5")
    return iter(())


# --- the cluster and its log ----------------------------------------------------------------------------------------


def _cluster_status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """A row a node, then one of the whole."""
    state = api.ask("GET", "/cluster", version="v5")
    for node in state["nodes"]:
        yield {
            "node": node["name"],
            "role": node["role"],
            "version": node["version"],
            "state": _state(node),
            "leads": node["leads"],
            "connections": node["connections"],
            "slots": node["slots"],
            "replicants": node["replicants"],
            "writes_through": node["writes_through"],
            "unreachable": node["unreachable"],
        }
    yield {name: state[name] for name in ("told_by", "stale", "leader", "slots_without_owner")}


def _state(node: Row) -> str:
    if not node["heard"]:
        return "unheard"
    if node["draining"]:
        return "draining"
    if node.get("hears_redis") is False:
        return "ready, without Redis" if node["ready"] else "cut off from Redis"
    if node["ready"]:
        return "ready"
    return "stale" if node.get("stale") else "starting"


def _rlog_status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """A row a node and shard. The sum of a shard's digests is shown, or with --json all there is."""
    for node in api.ask("GET", "/rlog/nodes", version="v5")["data"]:
        for shard, log in (node["shards"] or {"-": None}).items():
            row = _log_row(log) if not options.json else log or {}
            yield {"node": node["name"], "role": node["role"], "shard": shard, **row}


def _log_row(log: Row | None) -> Row:
    """None: the node didn't answer."""
    if log is None:
        return dict.fromkeys(("applied", *_LOG_COLUMNS, "digest"))
    digest = sum(int(digest, 16) for digest in log["digests"].values()) % 2**64
    shown = {column: log[name] for column, name in _LOG_COLUMNS.items()}
    return {"applied": log["applied"], **shown, "digest": f"{digest:016x}"}


_LOG_COLUMNS: Final = {
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
"""Of `/api/v5/rlog/nodes`: what it is called in a table."""


# --- secrets --------------------------------------------------------------------------------------------------------


def _password(source: TextIO | None = None) -> str:
    """Asked for twice at a terminal; else the first line of standard input. Raises ConfigError."""
    source = sys.stdin if source is None else source
    try:
        if not source.isatty():
            password = source.readline(SECRET_MAX_BYTES).rstrip("\r\n")
        else:
            password = getpass.getpass("Password: ")
            if getpass.getpass("Again: ") != password:
                raise ConfigError("the two passwords differ; try again")
    except EOFError:
        password = ""
    except UnicodeDecodeError:
        raise ConfigError("the password isn't UTF-8 text") from None
    if not password:
        raise ConfigError("the password is empty; type one, or give it on standard input")
    _check_text(password, "the password")
    return password


def _check_text(text: str, what: str) -> None:
    """Raise ConfigError for bytes of an argument or of standard input that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} isn't UTF-8 text") from None


def _key(file: Path | None) -> Secret:
    if file is None:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not key:
            raise ConfigError(f"no API key: name the file that holds it with --api-key-file, or set {KEY_VARIABLE}")
        return _checked_key(key, KEY_VARIABLE)
    try:
        with file.open("rb") as opened:
            key = opened.read(SECRET_MAX_BYTES).decode().strip()
    except OSError as error:
        raise ConfigError(f"--api-key-file: {str(file)!r} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--api-key-file: {str(file)!r} isn't UTF-8 text") from None
    if not key:
        raise ConfigError(f"--api-key-file: {str(file)!r} is empty")
    return _checked_key(key, f"--api-key-file: {str(file)!r}")


def _checked_key(key: str, where: str) -> Secret:
    if not key.isprintable():
        raise ConfigError(f"{where}: the key must be one line of text, for it stands in a header")
    return Secret(key)


# --- asking ---------------------------------------------------------------------------------------------------------


def _path(*parts: str) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _trust(cacert: Path | None) -> ssl.SSLContext:
    """Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=cacert)
    except OSError as error:
        raise ConfigError(f"--cacert: {str(cacert)!r} can't be used: {error.strerror or error}") from None


class Api:
    """The REST API of one node; `key` None: only what needs none."""

    def __init__(self, url: str, key: Secret | None, cacert: Path | None = None) -> None:
        if fault := http_url_fault(url):
            raise ConfigError(f"--url: {fault}; a node's management address looks like {DEFAULT_URL}")
        parts = urlsplit(url)
        assert parts.hostname is not None, "it was read"
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        if cacert is not None and parts.scheme != "https":
            raise ConfigError("--cacert: says whom to trust with https; give an https --url, or leave it away")
        self._tls = _trust(cacert) if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, parts.port
        self._key = key

    def ask(self, method: str, path: str, body: object = None, version: str = "v1") -> Row:
        """The answer; {} where there is none. Raises CtlError with what the node says."""
        answer: Row = self._exchange(method, path, body, version, dict)
        return answer

    def rows(self, path: str, version: str) -> list[Row]:
        """A list that isn't paged. Raises CtlError."""
        answer: list[Row] = self._exchange("GET", path, None, version, list)
        return answer

    def _exchange(self, method: str, path: str, body: object, version: str, kind: type) -> Any:
        if len(path) > _PATH_MAX_BYTES:
            raise CtlError(f"{path[:60]}… is too long for a path; list what begins so, with a * at the end")
        headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}".encode()
        connection = self._connection()
        try:
            raw = None if body is None else msgspec.json.encode(body)
            connection.request(method, f"/api/{version}{path}", body=raw, headers=headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "no answer"
            raise CtlError(f"{self._url} can't be asked: {why}; name a node's management address with --url") from None
        finally:
            connection.close()
        try:
            answer = msgspec.json.decode(text) if text else {}
        except msgspec.DecodeError:
            answer = {}
        if response.status >= 300 or not isinstance(answer, kind):
            said = answer.get("error") if isinstance(answer, dict) else None
            raise CtlError(f"{self._url} says {response.status}: {said or 'it is no FlockMQ node, or an older one'}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE_S, context=self._tls)

    def pages(self, path: str, wanted: Mapping[str, str] = {}) -> Iterator[Row]:
        """Every row of a list. What isn't in it is said on standard error."""
        after: str | None = None
        said: set[str] = set()
        while True:
            query = {"limit": str(AUTH_PAGE_MAX), **wanted, **({} if after is None else {"after": after})}
            page = self.ask("GET", f"{path}?{urlencode(query)}")
            yield from page["data"]
            for missing in [why for why in page.get("missing", ()) if why not in said]:
                said.add(missing)
                print(f"flockmq ctl: not all is shown: {missing}", file=sys.stderr)
            after = page["next"]
            if after is None:
                return
