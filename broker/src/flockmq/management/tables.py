"""REST API: the tables of the log, as a core saves them on its disk. A backup needs them beside Redis: the log there is
trimmed, and begins behind what the cores' disks have. Needs an admin's key, because they hold hashes of passwords and
keys (see `guard`).

| path | answers |
|---|---|
| GET /api/v1/tables/SHARD | the shard's snapshot as it is now, in the format of the core's file (rlog/snapshot.py) |
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from aiohttp import web

from flockmq.management.answers import VIEWS

PIECE_BYTES: Final = 256 * 1024

routes = web.RouteTableDef()


@routes.get("/api/v1/tables/{shard}")
async def tables(request: web.Request) -> web.StreamResponse:
    with await request.app[VIEWS].tables.saved(request.match_info["shard"]) as file:
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = os.fstat(file.fileno()).st_size
        await response.prepare(request)
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            await response.write(piece)
        await response.write_eof()
    return response
