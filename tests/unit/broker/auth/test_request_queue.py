"""Questions to other services: who asks much waits behind itself."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from flockmq.auth import request_queue
from flockmq.auth.request_queue import RequestQueue


class Service:
    """Answers when a test says so; `asked` is in the order in which it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.refused: list[str] = []
        self._go_on = asyncio.Semaphore(0)

    async def question(self, name: str) -> None:
        self.asked.append(name)
        await self._go_on.acquire()
        self.answered.append(name)

    async def answer(self, count: int) -> None:
        """And have what waits asked."""
        for _ in range(count):
            self._go_on.release()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    bounds = {"ASKED_MAX": 4, "ASKED_OF_CONNECTION_MAX": 2, "ASKING_OF_CONNECTION_MAX": 3, "ASKING_OF_GONE_MAX": 4}
    for name, bound in bounds.items():
        monkeypatch.setattr(request_queue, name, bound)
    return Service()


def ask(asked: RequestQueue, service: Service, client: str, count: int, user: str = "") -> None:
    """Each client is a user of its own, if it isn't said."""
    for name in (f"{client}{number}" for number in range(count)):
        question, refused = partial(service.question, name), partial(service.refused.append, name)
        asked.ask(client, (user or client).encode(), question, refused)


async def test_a_client_that_asks_much_holds_up_no_other(service: Service) -> None:
    asked = RequestQueue()
    ask(asked, service, "a", 5)
    ask(asked, service, "b", 1)
    await service.answer(0)
    assert service.asked == ["a0", "a1", "b0"]
    await service.answer(9)
    assert sorted(service.answered) == ["a0", "a1", "a2", "a3", "a4", "b0"]
    assert len(asked) == 0


async def test_those_that_wait_have_their_turns(service: Service) -> None:
    asked = RequestQueue()
    for client in "abcd":
        ask(asked, service, client, 2)
    await service.answer(0)
    assert service.asked == ["a0", "a1", "b0", "b1"]
    await service.answer(2)
    assert service.asked[4:] == ["c0", "d0"]
    await service.answer(9)
    assert service.asked[6:] == ["c1", "d1"]


async def test_users_take_turns_however_many_clients_they_have(service: Service) -> None:
    asked = RequestQueue()
    for client in "abcdefgh":
        ask(asked, service, client, 1, "many")
    ask(asked, service, "o", 2, "one")
    await service.answer(0)
    assert service.asked == ["a0", "b0", "c0", "d0"]
    await service.answer(2)
    assert service.asked[4:] == ["e0", "o0"]
    await service.answer(9)
    assert service.asked[6:] == ["f0", "o1", "g0", "h0"]
    assert len(asked) == 0


async def test_the_questions_of_one_client_that_wait_have_a_bound(service: Service) -> None:
    asked = RequestQueue()
    ask(asked, service, "a", 7)
    ask(asked, service, "b", 1)
    assert len(asked) == 6
    assert service.refused == [], "in a later turn"
    await service.answer(9)
    assert service.refused == ["a5", "a6"]
    assert len(service.answered) == 6


async def test_of_those_that_are_gone_no_more_wait_than_may_whoever_they_were(service: Service) -> None:
    asked = RequestQueue()
    ask(asked, service, "a", 4)
    ask(asked, service, "b", 5)
    await service.answer(0)
    for client in "cdef":
        ask(asked, service, client, 3)
        asked.gone(client)
    await service.answer(0)
    assert service.refused == ["d2", "d1", *(f"{client}{number}" for client in "ef" for number in (2, 1, 0))]
    asked.gone("b")
    await service.answer(0)
    assert service.refused[-3:] == ["b4", "b3", "b2"]
    await service.answer(99)
    assert len(asked) == 0
    ask(asked, service, "g", 4)
    ask(asked, service, "h", 4)
    asked.gone("h")
    asked.gone("g")
    asked.gone("g")
    await service.answer(99)
    assert len(service.answered) == 4 + 2 + 3 + 1 + 8


async def test_a_connection_that_is_gone_and_may_have_nothing_asked_has_no_turn(service: Service) -> None:
    asked = RequestQueue()
    for client in "abcd":
        ask(asked, service, client, 3)
        asked.gone(client)
    await service.answer(99)
    assert len(asked) == 0
    assert len(service.answered) + len(service.refused) == 12


async def test_who_stops_leaves_nothing_behind(service: Service) -> None:
    asked = RequestQueue()
    ask(asked, service, "a", 5)
    await service.answer(0)
    await asked.stop()
    await service.answer(9)
    assert (service.asked, service.answered, len(asked)) == (["a0", "a1"], [], 0)
