"""The middlewares of the management server: errors, authentication, authorization and audit of every request.

    errors_as_json ─▶ refuse_compressed ─▶ with_key (checks key and role) ─▶ audited (logs changes) ─▶ the handler

A failed request is answered with `{"error": …}`, which names the field and what to change.

Invariants:
- Every path except those in KEYLESS needs a key.
- Only admins may change anything, except for the paths of operators.
- A key that was removed while the body came changes nothing.
- The answer to a wrong key is delayed.
- Compressed bodies are refused, because their unpacked size is unbounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from flockmq.auth.addresses import network, shown_address
from flockmq.auth.admin import Exists, Invalid, Missing, Unused
from flockmq.auth.hash_pool import Busy
from flockmq.bounds import (
    API_FAILURE_MAX_S,
    API_FAILURE_MIN_S,
    API_FAILURES_FORGOTTEN_S,
    API_FAILURES_MAX_ADDRESSES,
    API_FAILURES_WAITING_MAX,
    AUTH_REQUEST_MAX_BYTES,
    REFUSALS_LOGGED_PER_S,
)
from flockmq.clock import SYSTEM
from flockmq.logs import AUDIT, Sparing
from flockmq.management.answers import ABOUT, STILL_ALLOWED, RequestRefused
from flockmq.management.api_keys import ROLES, ApiKeys, Holder, Role
from flockmq.management.audit_log import AuditLog
from flockmq.management.view import Conflict, Unavailable
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.errors import LogFull

log: Final = logging.getLogger(__name__)
audit: Final = logging.getLogger(AUDIT)

WRONG_KEY: Final = "the API key is missing, wrong or ran out; send the header Authorization: Bearer KEY"
HOLDER: Final = web.RequestKey("holder", Holder)
SEEN: Final = ("GET", "HEAD")
KEYLESS: Final = (
    "/livez",
    "/readyz",
    "/availz",
    "/metrics",
    "/api/v1/nodes",
    "/api/v1/status",
    "/api/v1/plugins",
    "/api/v1/rebalance",
    "/api/v5/alarms",
    "/api/v5/cluster",
    "/api/v5/rlog",
    "/api/v5/rlog/nodes",
)
"""Paths that can be read without a key."""
OF_ADMINS: Final = ("/api/v1/keys", "/api/v1/tables")
"""Paths that only admins can read, with all paths below them."""
OF_OPERATORS: Final = (
    "/api/v1/clients",
    "/api/v1/sessions",
    "/api/v1/bans",
    "/api/v1/evacuation",
    "/api/v1/rebalance",
    "/api/v1/plugins",
    "/api/v5/alarms",
)
"""Paths that operators may change. Only admins may change others."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def role_for(method: str, path: str) -> Role | None:
    """The lowest role that may send this request; None if it needs no key."""
    if method in SEEN:
        if path in KEYLESS:
            return None
        return "admin" if _is_at(path, OF_ADMINS) else "viewer"
    return "operator" if _is_at(path, OF_OPERATORS) else "admin"


def _is_at(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert exceptions to a JSON response with one sentence."""
    try:
        return await handler(request)
    except RequestRefused as error:
        return _error(error.status, str(error))
    except Invalid as error:
        return _error(400, str(error))
    except Missing as error:
        return _error(404, str(error))
    except Unused as error:
        return _error(409, f"{error}, on all nodes; until then it would have no effect")
    except Conflict as error:
        return _error(409, str(error))
    except Exists as error:
        return _error(409, f"{error}; change it with PUT")
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the body may have {AUTH_REQUEST_MAX_BYTES} bytes at most")
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return _error(error.status, f"{request.method} {request.path}: {error.reason}")
    except Busy:
        return _error(503, "too many passwords wait to be hashed; try again later")
    except LogFull as error:
        return _error(507, str(error))
    except Unavailable as error:
        return _error(503, f"{error}; try again later")
    except StorageUnavailable as error:
        return _error(503, f"{error}; the change may still be made: look whether it was before you try again")
    except StorageError as error:
        return _error(503, f"the log takes no writes now: {error}; try again later")


@web.middleware
async def refuse_compressed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a body with a Content-Encoding, before reading it."""
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise RequestRefused(
            415, f"Content-Encoding: {coding[:32]!r} isn't taken here; send the body as it is, without that header"
        )
    return await handler(request)


class Guard:
    """The middlewares of one server, and the state that they share."""

    def __init__(self, keys: ApiKeys, audit: AuditLog) -> None:
        self._keys = keys
        self._audit = audit
        self._failures = WrongKeyDelay()
        self._waiting = 0
        self._sparing = Sparing(log, REFUSALS_LOGGED_PER_S, SYSTEM.monotonic)

    def middlewares(self) -> list[Middleware]:
        return [errors_as_json, refuse_compressed, self._with_key, self._audited]

    @web.middleware
    async def _with_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        role = role_for(request.method, request.path)
        if role is not None:
            request[HOLDER] = holder = await self._holder(request)
            request[STILL_ALLOWED] = partial(self._check_again, request)
            if ROLES.index(role) > _rank(holder.role):
                self._sparing.warning(
                    "%s (%s) may not %s %.256r", holder.name, holder.role, request.method, request.path
                )
                raise RequestRefused(
                    403, f"it takes a key of the role {role}; {holder.name!r} has the role {holder.role}"
                )
        return await handler(request)

    async def _holder(self, request: web.Request) -> Holder:
        if not len(self._keys):
            raise RequestRefused(403, "no API key is configured; name a file that holds one in management.api_key_file")
        holder = self._presented(request)
        if holder is not None:
            return holder
        if _is_bearer(request):
            await self._take_time(request)
        raise RequestRefused(401, WRONG_KEY)

    def _presented(self, request: web.Request) -> Holder | None:
        """The holder of the key in the request; None if it has no key, or a wrong one."""
        if not _is_bearer(request):
            return None
        presented = request.headers["Authorization"].partition(" ")[2].strip()
        return self._keys.holder(presented.encode(errors="surrogateescape"))

    def _check_again(self, request: web.Request) -> None:
        if self._presented(request) != request[HOLDER]:
            raise RequestRefused(401, WRONG_KEY)

    async def _take_time(self, request: web.Request) -> None:
        address = network(request.remote or "")
        wait_s = self._failures.failed(address, asyncio.get_running_loop().time())
        peer = shown_address(request.remote or "")
        self._sparing.warning("wrong API key from %s: %s %.256r", peer, request.method, request.path)
        if self._waiting >= API_FAILURES_WAITING_MAX:
            raise RequestRefused(
                429, f"too many wrong keys wait for their answers; try again in {API_FAILURE_MAX_S:g} s"
            )
        self._waiting += 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            self._waiting -= 1

    @web.middleware
    async def _audited(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        holder = request.get(HOLDER)
        if holder is None or request.method in SEEN:
            return await handler(request)
        peer = shown_address(request.remote or "")
        audit.info("%s (%s) from %s: %s %r", holder.name, holder.role, peer, request.method, request.path)
        response = await handler(request)
        if response.status < 300:
            about = request.get(ABOUT, "")
            await self._audit.note(holder, peer, request.method, request.path, about, response.status)
        return response


def _is_bearer(request: web.Request) -> bool:
    return request.headers.get("Authorization", "").partition(" ")[0].lower() == "bearer"


def holder_of(request: web.Request) -> Holder:
    return request[HOLDER]


def _rank(role: str) -> int:
    """The index of a role; -1 for a role that only a later release knows."""
    return ROLES.index(role) if role in ROLES else -1


def _error(status: int, why: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = msgspec.json.encode({"error": why}) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


class WrongKeyDelay:
    """The delay of the answer to a wrong API key, per client address. No I/O.

    A right key is never delayed: many clients may share one address, and nobody can guess 32 random bytes. The delay
    only slows down clients that try, and so the lines that they cause in the log file.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, tuple[int, float]] = {}
        """Address → (count of wrong keys in a row, time of the last one). The longest quiet address is first."""

    def failed(self, address: str, now_s: float) -> float:
        """Count a wrong key. Returns the delay of its answer in seconds."""
        count, last_s = self._by_address.pop(address, (0, now_s))
        count = 1 if now_s - last_s > API_FAILURES_FORGOTTEN_S else count + 1
        self._by_address[address] = count, now_s
        if len(self._by_address) > API_FAILURES_MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        return min(API_FAILURE_MIN_S * (1 << min(count - 1, 16)), API_FAILURE_MAX_S)
