"""Who has a service asked next, who is refused, and what is left of who gives up."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.auth.service_turns import Overloaded, ServiceTurns

LONG_S = 60.0


class Service:
    """One request at once, each until the test answers it."""

    def __init__(self, room: int) -> None:
        self.turns = ServiceTurns(1, room)
        self.asked: list[str] = []
        self.answers: list[asyncio.Future[None]] = []

    def ask(self, who: str, within_s: float = LONG_S) -> asyncio.Task[None]:
        return asyncio.ensure_future(self._ask(who, within_s))

    async def _ask(self, who: str, within_s: float) -> None:
        async with self.turns.turn(who, within_s):
            self.asked.append(who)
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.answers.append(answer)
            await answer

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def answer_all(self) -> None:
        await self.settle()
        while self.answers:
            answer = self.answers.pop()
            if not answer.done():
                answer.set_result(None)
            await self.settle()


async def test_who_asks_much_waits_for_all_others() -> None:
    service = Service(room=10)
    tasks = [service.ask(who) for who in ("much", "much", "much", "a", "b", "a")]
    await service.answer_all()
    await asyncio.gather(*tasks)
    assert service.asked == ["much", "much", "a", "b", "much", "a"]
    assert service.turns.waiting == 0


async def test_where_there_is_no_room_the_last_of_who_has_most_is_refused() -> None:
    service = Service(room=3)
    tasks = [service.ask("much") for _ in range(5)]
    await service.settle()
    with pytest.raises(Overloaded):
        await tasks[4]
    tasks.append(service.ask("a"))
    await service.settle()
    with pytest.raises(Overloaded):
        await tasks[3]
    with pytest.raises(Overloaded):
        await service.ask("a")
    await service.answer_all()
    await asyncio.gather(tasks[0], tasks[1], tasks[2], tasks[5])
    assert service.asked == ["much", "much", "a", "much"]


async def test_who_has_no_turn_in_time_takes_none() -> None:
    service = Service(room=3)
    first, late = service.ask("a"), service.ask("b", within_s=0.01)
    with pytest.raises(TimeoutError):
        await late
    assert service.turns.waiting == 0
    await service.answer_all()
    await first
    last = service.ask("c")
    await service.answer_all()
    await last
    assert service.asked == ["a", "c"]


@pytest.mark.parametrize("is_answered_first", [False, True])
async def test_who_gives_up_as_its_turn_comes_passes_it_on(is_answered_first: bool) -> None:
    service = Service(room=3)
    first, gone, other = service.ask("a"), service.ask("b"), service.ask("c")
    await service.settle()
    if is_answered_first:
        service.answers.pop().set_result(None)
        await asyncio.sleep(0)
        assert service.turns.waiting == 1, "it has its turn, and doesn't know it yet"
        gone.cancel()
    else:
        gone.cancel()
        service.answers.pop().set_result(None)
    await service.answer_all()
    assert gone.cancelled()
    await asyncio.gather(first, other)
    assert service.asked[-1] == "c"
    assert service.turns.waiting == 0
    last = service.ask("d")
    await service.answer_all()
    await last


async def test_who_was_refused_as_it_gave_up_leaves_nothing() -> None:
    service = Service(room=2)
    first, gone, kept = service.ask("a"), service.ask("much"), service.ask("much")
    await service.settle()
    kept.cancel()
    other = service.ask("b")
    await service.answer_all()
    await asyncio.gather(first, gone, other)
    assert service.turns.waiting == 0
