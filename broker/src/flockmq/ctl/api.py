"""The REST client of `flockmq ctl`."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flockmq.bounds import AUTH_PAGE_MAX, MANAGEMENT_REQUEST_LINE_MAX_BYTES
from flockmq.config.values import Secret, http_url_fault
from flockmq.errors import ConfigError, UserError

DEFAULT_URL: Final = "http://127.0.0.1:18083"
PATIENCE_S: Final = 30.0
DOWNLOAD_PATIENCE_S: Final = 300.0
"""A core writes a snapshot before the first byte of it comes."""
PIECE_BYTES: Final = 256 * 1024
PATH_MAX_BYTES: Final = MANAGEMENT_REQUEST_LINE_MAX_BYTES - 128
"""The rest of the request line is for the method, the API's prefix and the HTTP version."""

_CERTIFICATE_ENDS: Final = "-----END CERTIFICATE-----"

Row = Mapping[str, Any]


class CtlError(UserError):
    """The node can't be reached, or refuses the request."""


class Api:
    """The REST API of one node. Without a `key` only requests that need none can be sent."""

    def __init__(self, url: str, key: Secret | None, cacert: Path | None = None, pin: Path | None = None) -> None:
        if fault := http_url_fault(url):
            raise ConfigError(f"--url: {fault}; a node's management address looks like {DEFAULT_URL}")
        parts = urlsplit(url)
        assert parts.hostname is not None, "it was read"
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        for option, file in (("--cacert", cacert), ("--pin", pin)):
            if file is not None and parts.scheme != "https":
                raise ConfigError(f"{option}: says whom to trust with https; give an https --url, or leave it away")
        if cacert is not None and pin is not None:
            raise ConfigError("--pin: names the very certificate, so nobody's signature counts; leave --cacert away")
        self._pinned = None if pin is None else _first_certificate(pin)
        self._tls = None
        if parts.scheme == "https":
            self._tls = _trust(cacert) if self._pinned is None else _trust_whoever_is_pinned()
        self._host, self._port = parts.hostname, parts.port
        self._key = key

    def ask(self, method: str, path: str, body: object = None, version: str = "v1") -> Row:
        """Send a request. Returns the answer, {} if it is empty. Raises CtlError with the node's error."""
        answer: Row = self._exchange(method, path, body, version, dict)
        return answer

    def delete(self, path: str, version: str = "v1") -> Iterator[Row]:
        """Send a DELETE. Yields no rows. Raises CtlError."""
        self.ask("DELETE", path, version=version)
        return iter(())

    def end(self, named: str, post: str, body: Row) -> Iterator[Row]:
        """Delete what the path `named` names. If that is too long for a path, POST `body` to the path `post` instead.
        Yields no rows. Raises CtlError."""
        if len(named) <= PATH_MAX_BYTES:
            return self.delete(named)
        self.ask("POST", post, body)
        return iter(())

    def rows(self, path: str, version: str) -> list[Row]:
        """Get a list that isn't paged. Raises CtlError."""
        answer: list[Row] = self._exchange("GET", path, None, version, list)
        return answer

    def _exchange(self, method: str, path: str, body: object, version: str, kind: type) -> Any:
        if len(path) > PATH_MAX_BYTES:
            raise CtlError(f"{path[:60]}… is too long for a path; list what begins so, with a * at the end")
        raw = None if body is None else msgspec.json.encode(body)
        with self._response(method, f"/api/{version}{path}", raw, PATIENCE_S) as response:
            text = response.read()
        answer = _decoded(text)
        if response.status >= 300 or not isinstance(answer, kind):
            raise self._refused(response.status, answer)
        return answer

    def download(self, path: str, file: BinaryIO) -> None:
        """Write the answer's bytes to `file`. Raises CtlError."""
        with self._response("GET", f"/api/v1{path}", None, DOWNLOAD_PATIENCE_S) as response:
            if response.status >= 300:
                raise self._refused(response.status, _decoded(response.read()))
            expected, length = response.length, 0
            while piece := response.read(PIECE_BYTES):
                length += len(piece)
                try:
                    file.write(piece)
                except OSError as error:
                    raise CtlError(f"{file.name!r} can't be written: {error.strerror}") from None
            if expected is not None and length < expected:
                raise CtlError(f"{self._url} ended its answer after {length} of {expected} bytes; try again")

    @contextlib.contextmanager
    def _response(
        self, method: str, target: str, body: bytes | None, patience_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer's head; its body is read inside the block. Raises CtlError."""
        headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}".encode()
        connection = self._connection(patience_s)
        try:
            connection.connect()
            self._check_pin(connection)
            connection.request(method, target, body=body, headers=headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "no answer"
            raise CtlError(f"{self._url} can't be asked: {why}; name a node's management address with --url") from None
        finally:
            connection.close()

    def _connection(self, patience_s: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=patience_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=patience_s, context=self._tls)

    def _check_pin(self, connection: http.client.HTTPConnection) -> None:
        """Before anything is sent."""
        if self._pinned is not None:
            assert isinstance(connection.sock, ssl.SSLSocket)
            if connection.sock.getpeercert(binary_form=True) != self._pinned:
                raise CtlError(f"{self._url} shows another certificate than --pin names; if it was renewed, try again")

    def _refused(self, status: int, answer: object) -> CtlError:
        reason = answer.get("error") if isinstance(answer, dict) else None
        return CtlError(f"{self._url} says {status}: {reason or 'it is no FlockMQ node, or an older one'}")

    def pages(self, path: str, wanted: Mapping[str, str] = {}) -> Iterator[Row]:
        """Yield all rows of a paged list. Prints to standard error what is missing in it. Raises CtlError."""
        after: str | None = None
        printed: set[str] = set()
        while True:
            query = {"limit": str(AUTH_PAGE_MAX), **wanted, **({} if after is None else {"after": after})}
            page = self.ask("GET", f"{path}?{urlencode(query)}")
            yield from page["data"]
            for missing in [why for why in page.get("missing", ()) if why not in printed]:
                printed.add(missing)
                print(f"flockmq ctl: not all is shown: {missing}", file=sys.stderr)
            after = page["next"]
            if after is None:
                return


def path(*parts: str) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _decoded(text: bytes) -> object:
    """{} for what is no JSON."""
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}


def _first_certificate(pin: Path) -> bytes:
    """Raises ConfigError."""
    try:
        text = pin.read_text()
        begin = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index(_CERTIFICATE_ENDS, begin) + len(_CERTIFICATE_ENDS)
        return ssl.PEM_cert_to_DER_cert(text[begin:end])
    except OSError as error:
        raise ConfigError(f"--pin: {str(pin)!r} can't be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"--pin: {str(pin)!r} holds no certificate; it must be PEM") from None


def _trust_whoever_is_pinned() -> ssl.SSLContext:
    """Authorities and names don't count: the certificate itself is compared."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _trust(cacert: Path | None) -> ssl.SSLContext:
    """Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=cacert)
    except OSError as error:
        raise ConfigError(f"--cacert: {str(cacert)!r} can't be used: {error.strerror or error}") from None
