"""The broker's address and login: `mqtt://`, `mqtts://`, `ws://` and `wss://` URLs."""

from __future__ import annotations

import functools
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from flockmq.bench.options import URL
from flockmq.errors import ConfigError

DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
DEFAULT_PATH: Final = "/mqtt"


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """A broker's address, and the login for all connections."""

    scheme: str
    host: str
    port: int
    path: str = DEFAULT_PATH
    username: bytes | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None

    def resolved(self) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
        """Address family and socket address, looked up once. Raises OSError."""
        return _resolved(self.host, self.port)

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.websocket else ''}"


def parse(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    cafile: Path | None = None,
    insecure: bool = False,
) -> BenchTarget:
    """The target for a URL. Raises ConfigError with one line that says what is wrong."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ConfigError(f"{url!r}: the port must be from 1 to 65535; for example {URL}") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ConfigError(f"{url!r} must be mqtt://, mqtts://, ws:// or wss:// and a host; for example {URL}")
    if parts.username is not None:
        raise ConfigError("a login doesn't belong into the URL; say it with --username and --password-file")
    return BenchTarget(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=parts.path or DEFAULT_PATH,
        username=None if username is None else username.encode(),
        password=None if password is None else password.encode(),
        tls=_tls(cafile, insecure) if parts.scheme in ("mqtts", "wss") else None,
    )


@functools.cache
def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, address


def _tls(cafile: Path | None, insecure: bool) -> ssl.SSLContext:
    """`insecure`: accept any certificate and any name in it."""
    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise ConfigError(f"--cafile {cafile}: can't be read: {error.strerror or error}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
