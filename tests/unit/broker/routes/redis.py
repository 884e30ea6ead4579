"""A Redis that loses nothing, as claims ask."""

from __future__ import annotations

import asyncio

from flockmq.rlog.entry import StreamId


def secured() -> asyncio.Future[StreamId]:
    done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
    done.set_result(StreamId(1, 0))
    return done
