"""The REST client of `flockmq ctl`."""

from __future__ import annotations

import http.client
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flockmq.bounds import AUTH_PAGE_MAX, MANAGEMENT_REQUEST_LINE_MAX_BYTES
from flockmq.config.values import Secret, http_url_fault
from flockmq.errors import ConfigError, UserError

DEFAULT_URL: Final = "http://127.0.0.1:18083"
PATIENCE_S: Final = 30.0
PATH_MAX_BYTES: Final = MANAGEMENT_REQUEST_LINE_MAX_BYTES - 128
"""The rest of the request line is for the method, the API's prefix and the HTTP version."""

Row = Mapping[str, Any]


class CtlError(UserError):
    """The node can't be reached, or refuses the request."""


class Api:
    """The REST API of one node. Without a `key` only requests that need none can be sent."""

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
        """Send a request. Returns the answer, {} if it is empty. Raises CtlError with the node's error."""
        answer: Row = self._exchange(method, path, body, version, dict)
        return answer

    def delete(self, path: str, version: str = "v1") -> Iterator[Row]:
        """Send a DELETE. Yields no rows. Raises CtlError."""
        self.ask("DELETE", path, version=version)
        return iter(())

    def end(self, noun: str, client_id: str, verb: str) -> Iterator[Row]:
        """Delete a client's connection or session. Uses a POST if the client id is too long for a path. Yields no rows.
        Raises CtlError."""
        whose = path(noun, client_id)
        if len(whose) <= PATH_MAX_BYTES:
            return self.delete(whose)
        self.ask("POST", f"/{noun}/{verb}", {"clientid": client_id})
        return iter(())

    def rows(self, path: str, version: str) -> list[Row]:
        """Get a list that isn't paged. Raises CtlError."""
        answer: list[Row] = self._exchange("GET", path, None, version, list)
        return answer

    def _exchange(self, method: str, path: str, body: object, version: str, kind: type) -> Any:
        if len(path) > PATH_MAX_BYTES:
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
            reason = answer.get("error") if isinstance(answer, dict) else None
            raise CtlError(f"{self._url} says {response.status}: {reason or 'it is no FlockMQ node, or an older one'}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE_S, context=self._tls)

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


def _trust(cacert: Path | None) -> ssl.SSLContext:
    """Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=cacert)
    except OSError as error:
        raise ConfigError(f"--cacert: {str(cacert)!r} can't be used: {error.strerror or error}") from None
