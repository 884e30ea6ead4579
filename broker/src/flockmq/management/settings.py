"""REST API: settings that are changed while nodes run, in all nodes at once.

| path | GET | PATCH | PUT |
|---|---|---|---|
| /api/v1/settings | what holds at this node, and what is changed | changes it: a merge patch (RFC 7396) | |
| /api/v1/settings/history | the last revisions, the newest first | | |
| /api/v1/settings/revision | | | `{"revision": 3}`: as it was then |

A change is answered when this node has applied it; other nodes apply it when they read the log. `If-Match: REVISION`
refuses it (412) if somebody has changed the settings since. All requests need an API key (see `guard`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from flockmq.management.answers import VIEWS, RequestRefused, about, answer, body_of
from flockmq.management.guard import holder_of
from flockmq.management.settings_rows import SettingsShown

routes = web.RouteTableDef()


class _Earlier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    revision: Annotated[int, Meta(ge=0, le=2**63 - 1)]


@routes.get("/api/v1/settings")
async def show(request: web.Request) -> web.Response:
    return _shown(request.app[VIEWS].settings.shown())


@routes.patch("/api/v1/settings")
async def change(request: web.Request) -> web.Response:
    patch = await body_of(request, object)
    shown = await request.app[VIEWS].settings.change(patch, holder_of(request).name, _expected(request))
    about(request, f"revision {shown.revision}: {msgspec.json.encode(patch).decode()}")
    return _shown(shown)


@routes.get("/api/v1/settings/history")
async def history(request: web.Request) -> web.Response:
    return answer(200, {"data": request.app[VIEWS].settings.history()})


@routes.put("/api/v1/settings/revision")
async def restore(request: web.Request) -> web.Response:
    earlier = await body_of(request, _Earlier)
    about(request, f"revision {earlier.revision}")
    view, by = request.app[VIEWS].settings, holder_of(request).name
    shown = await view.restore(earlier.revision, by, _expected(request))
    about(request, f"revision {shown.revision}: as revision {earlier.revision}")
    return _shown(shown)


def _shown(shown: SettingsShown) -> web.Response:
    response = answer(200, shown)
    response.etag = str(shown.revision)
    return response


def _expected(request: web.Request) -> int | None:
    """The revision in If-Match. Raises RequestRefused."""
    given = request.headers.get("If-Match")
    if given is None:
        return None
    text = given.strip().strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RequestRefused(400, f"If-Match: {given[:32]!r} must be the number of a revision")
    return int(text)
