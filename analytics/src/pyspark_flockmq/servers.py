"""Which server is read, and how it is reached: the one that the URL names, the primary that the sentinels name, or the
master that has a key's hash slot.

Of sentinels, and of a cluster's nodes, all are asked at once, and what most of them say counts: so one that is cut off
doesn't lead to a primary of before a failover. A primary must say itself that it is one, and be named once more behind
that. Passwords and certificates are read from their files at each connect, so a rotated one is taken up, and none is in
a plan, a log or a pickled reader.

Invariant: what is done may be done twice. A server that is lost amid it is looked for again, with what is done from the
start, for as long as a failover takes.
"""

import ssl
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from pyspark_flockmq.errors import RedisUnavailable
from pyspark_flockmq.secret_files import read_password, tls_context
from pyspark_flockmq.url import RedisServer, RedisUrl

CONNECT_TIMEOUT_S: Final = 5
ANSWER_TIMEOUT_S: Final = 30
SERVER_WAIT_S: Final = 1.0
"""For how long one server is tried again: nothing takes its place."""
FAILOVER_WAIT_S: Final = 30.0
"""For how long a primary, or the master of a hash slot, is looked for again."""
RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 1.0

Answer = TypeVar("Answer", bound=Hashable)
T = TypeVar("T")
Client = redis.Redis
SlotMap = tuple[tuple[int, int, RedisServer], ...]
"""(first, last, master) of ranges of hash slots, both ends included."""


@dataclass(frozen=True)
class RedisConfig:
    """Where Redis is, and how to authenticate: of secrets, the paths of their files."""

    url: RedisUrl
    username: str | None = None
    """None: the URL's."""
    password_file: str | None = None
    sentinel_password_file: str | None = None
    cacertfile: str | None = None
    """PEM: the CAs of the servers' certificates. None: those that the system trusts."""
    certfile: str | None = None
    keyfile: str | None = None

    def by_server(self, keys: list[str]) -> list[list[str]]:
        """Group the keys so that each group is certainly on one server."""
        return [[key] for key in keys] if self.url.kind == "cluster" else [keys]


class _Lost(Exception):
    """This server, or who knows it, can't be reached, or isn't the one any more: it is looked for again."""


class Primaries:
    """Connections to the servers that have the keys, made when they are needed."""

    def __init__(self, config: RedisConfig) -> None:
        self.config = config
        self._wait_s = SERVER_WAIT_S if config.url.kind == "server" else FAILOVER_WAIT_S
        self._open: dict[RedisServer | None, Client] = {}
        """By server; None: the only one there is for all keys."""
        self._slots: SlotMap = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._forget()

    def call(self, key: str, work: Callable[[Client], T]) -> T:
        """Do `work` at the server that has `key`; from its start at another one if that is lost amid it. Raises
        RedisUnavailable, OptionError."""
        until_s = time.monotonic() + self._wait_s
        pause_s = RETRY_MIN_S
        while True:
            try:
                return self._once(key, work)
            except _Lost as lost:
                self._forget()
                if time.monotonic() >= until_s:
                    raise RedisUnavailable(str(lost)) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _once(self, key: str, work: Callable[[Client], T]) -> T:
        server = self._master_of(key) if self.config.url.kind == "cluster" else None
        client = self._open.get(server)
        if client is None:
            client = self._open[server] = _open_primary(self.config) if server is None else _open(self.config, server)
        try:
            return work(client)
        except redis.RedisError as error:
            raise _translated(self.config, _server_of(client), error) from None

    def _master_of(self, key: str) -> RedisServer:
        if not self._slots:
            (self._slots, *_) = _most_frequent(self.config, _slot_map)
        slot = key_slot(key.encode())
        for first, last, master in self._slots:
            if first <= slot <= last:
                return master
        raise _Lost(f"Redis at {self.config.url}: no master has the hash slot of {key}")

    def _forget(self) -> None:
        for client in self._open.values():
            client.close()
        self._open, self._slots = {}, ()


def _open_primary(config: RedisConfig) -> Client:
    """Connect to the URL's server, or to the primary that most sentinels name, before and after it said that it is
    one."""
    if config.url.kind == "server":
        return _open(config, config.url.servers[0])
    named = _most_frequent(config, _named)[0]
    client = _open(config, named)
    try:
        role = client.info("replication").get("role")
    except redis.RedisError as error:
        client.close()
        raise _translated(config, named, error) from None
    if role == "master" and _most_frequent(config, _named)[0] == named:
        return client
    client.close()
    raise _Lost(f"Redis at {named}: the sentinels name it, but it is no primary (any more, or yet)")


def _open(config: RedisConfig, server: RedisServer, to_sentinel: bool = False) -> Client:
    """It connects with the first command."""
    password_file = config.sentinel_password_file if to_sentinel else config.password_file
    options: dict[str, Any] = {
        "username": None if to_sentinel else config.username or config.url.username,
        "password": read_password(password_file) if password_file else None,
        "db": 0 if to_sentinel else config.url.database,
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": CONNECT_TIMEOUT_S if to_sentinel else ANSWER_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
    kind: Any = redis.Connection
    if not server.port:
        kind, options["path"] = redis.UnixDomainSocketConnection, server.host
        del options["socket_connect_timeout"]
    else:
        options |= {"host": server.host, "port": server.port}
        if config.url.tls:
            kind, options["context"] = _TlsConnection, tls_context(config.cacertfile, config.certfile, config.keyfile)
    return Client(connection_pool=redis.ConnectionPool(connection_class=kind, **options))


class _TlsConnection(redis.SSLConnection):
    """With the authority of `context` alone: redis-py adds one to those that the system trusts."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self._context = context

    def _wrap_socket_with_ssl(self, sock: Any) -> ssl.SSLSocket:
        return self._context.wrap_socket(sock, server_hostname=self.host)


def _server_of(client: Client) -> RedisServer:
    options = client.get_connection_kwargs()
    return RedisServer(options["path"], 0) if "path" in options else RedisServer(options["host"], options["port"])


# --- asking who has it ------------------------------------------------------------------------------------------------


def _most_frequent(config: RedisConfig, ask: Callable[[RedisConfig, RedisServer, Client], Answer]) -> list[Answer]:
    """What the URL's servers answer, the most frequent answer first, as soon as more than half of them agree, or all
    have answered or failed."""
    servers = config.url.servers
    answers: Counter[Answer] = Counter()
    errors: dict[str, Exception] = {}
    asking = ThreadPoolExecutor(len(servers))
    try:
        for asked in as_completed(asking.submit(_asked, config, server, ask) for server in servers):
            try:
                answers[asked.result()] += 1
            except (_Lost, RedisUnavailable) as error:
                errors[str(error)] = error
            if max(answers.values(), default=0) * 2 > len(servers):
                break
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
    if answers:
        return [answer for answer, _ in answers.most_common()]
    are_refusals = all(isinstance(error, RedisUnavailable) for error in errors.values())
    why = f"Redis at {config.url}: nobody can be asked where it is: {'; '.join(errors)}"
    raise RedisUnavailable(why) if are_refusals else _Lost(why)


def _asked(
    config: RedisConfig, server: RedisServer, ask: Callable[[RedisConfig, RedisServer, Client], Answer]
) -> Answer:
    to_sentinel = config.url.kind == "sentinel"
    client = _open(config, server, to_sentinel)
    try:
        return ask(config, server, client)
    except redis.RedisError as error:
        raise _translated(config, server, error, to_sentinel) from None
    finally:
        client.close()


def _named(config: RedisConfig, sentinel: RedisServer, client: Client) -> RedisServer:
    match client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", config.url.primary):
        case [bytes(host), bytes(port)]:
            return RedisServer(host.decode(), int(port))
    raise _Lost(f"the sentinel at {sentinel}: it knows no primary {config.url.primary}")


def _slot_map(config: RedisConfig, node: RedisServer, client: Client) -> SlotMap:
    rows = cast("list[Any]", client.execute_command("CLUSTER", "SLOTS"))
    return tuple(
        sorted(
            (first, last, RedisServer(host.decode() if host else node.host, port))
            for first, last, (host, port, *_), *_ in rows
        )
    )


# --- what went wrong --------------------------------------------------------------------------------------------------

_MOVED_ON: Final = (
    redis.exceptions.AskError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
)
"""What a server says that is the wrong one, or can't tell yet."""


def _translated(
    config: RedisConfig, server: RedisServer, error: redis.RedisError, to_sentinel: bool = False
) -> RedisUnavailable | _Lost:
    """One line that names the server and never a password; _Lost if another try may do better."""
    who = f"{'the sentinel' if to_sentinel else 'Redis'} at {server}"
    said = " ".join(str(error).split())
    if isinstance(error, redis.AuthenticationError):
        file = config.sentinel_password_file if to_sentinel else config.password_file
        kind = "sentinel password" if to_sentinel else "password"
        return RedisUnavailable(
            f"{who} refused the password ({said}); {f'check {file}' if file else f'name a {kind} file'}"
        )
    if (tls := _tls_error(error)) is not None:
        return RedisUnavailable(f"{who} can't be used by TLS: {tls}; see cacertfile, certfile and keyfile")
    if isinstance(error, redis.ResponseError) and not isinstance(error, _MOVED_ON):
        return RedisUnavailable(f"{who} refused a command: {said}")
    return _Lost(f"{who} can't be reached: {said}")


def _tls_error(error: BaseException | None) -> str | None:
    """OpenSSL's error, if that is the cause: redis-py wraps it."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of the server is refused: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return (error.reason or str(error)).lower().replace("_", " ")
        error = error.__cause__ or error.__context__
    return None
