"""What a request is told when it fails."""

from __future__ import annotations

import pytest
from aiohttp import web

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.errors import LogFull, LogRefused
from unit.broker.management.harness import serving


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (StorageUnavailable("not written within 10 s"), 503, "the change may still be made"),
        (LogRefused("this node was purged"), 503, "try again later"),
        (LogFull("the table is full"), 507, "the table is full"),
    ],
)
async def test_a_change_that_the_log_doesnt_take_says_what_became_of_it(
    error: Exception, status: int, text: str
) -> None:
    routes = web.RouteTableDef()

    @routes.put("/change")
    async def change(request: web.Request) -> web.Response:
        raise error

    async with serving(routes, None) as http, http.put("/change") as response:
        assert response.status == status
        assert text in (await response.json())["error"]
