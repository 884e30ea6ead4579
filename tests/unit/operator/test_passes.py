"""The loop around each object that is kept."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from flockmq_operator.management_api import Access, ManagementApi, NodeAway, connected
from flockmq_operator.metrics import Metrics
from flockmq_operator.passes import PASSES_MAX, Done, Key, Passes
from flockmq_operator.slots import asking
from unit.operator.test_management_api import answering
from unit.operator.world import NAMESPACE

DEMO = (NAMESPACE, "demo")
STRANGERS = [("stranger", f"c{number}") for number in range(PASSES_MAX)]


def passes(make: Callable[[Key], Awaitable[Done]]) -> Passes:
    return Passes("it", make, lambda _: None, Metrics(), 0.001)


async def test_nothing_is_begun_once_passes_are_stopped() -> None:
    made: list[str] = []

    async def make(_: object) -> Done:
        made.append("pass")
        return Done()

    looks = passes(make)
    await looks.stop()
    looks.wake(DEMO)
    await asyncio.sleep(0.02)
    assert (made, looks.busy_with()) == ([], set())


async def test_a_node_that_does_not_answer_holds_up_no_other_mqttcluster() -> None:
    asked, made, answered = set[str](), asyncio.Event(), asyncio.Event()

    async def never(request: web.Request) -> web.Response:
        asked.add(request.path)
        await answered.wait()
        return web.Response()

    async with answering(never) as port, asyncio.timeout(10):

        async def make(key: Key) -> Done:
            if key == DEMO:
                made.set()
                return Done(gone=True)
            async with connected(Access(f"http://127.0.0.1:{port}", "key", None), ManagementApi) as api:
                await api.ask("GET", f"/{key[1]}")
            return Done(gone=True)

        each = passes(make)
        for key in STRANGERS:
            each.wake(key)
        while len(asked) < PASSES_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        each.wake(DEMO)
        await made.wait()
        answered.set()
        while each.busy_with():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await each.stop()


async def test_so_many_at_a_time_whatever_they_have_asked() -> None:
    """Of a pass several parts ask at once, and some of them fail."""
    busy = most = ended = 0

    async def part(number: int) -> None:
        with contextlib.suppress(NodeAway):
            async with asking():
                await asyncio.sleep(0.001 * (number % 3))
                raise NodeAway("it is away")

    async def make(_: Key) -> Done:
        nonlocal busy, most, ended
        for _again in range(3):
            await asyncio.gather(*map(part, range(4)))
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.001)
            busy -= 1
        ended += 1
        return Done(gone=True)

    each = passes(make)
    for key in [(NAMESPACE, str(number)) for number in range(5 * PASSES_MAX)]:
        each.wake(key)
    async with asyncio.timeout(10):
        while each.busy_with():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert (most, ended) == (PASSES_MAX, 5 * PASSES_MAX)
    assert each._slots._value == PASSES_MAX, "none was lost"
