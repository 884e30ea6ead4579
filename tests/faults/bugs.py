"""Defects put into a node on purpose: the checker that doesn't find one of them proves nothing.

Each replaces one function of the broker, in the process that `faults.launch` starts, and breaks one promise.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from flockmq.session.durable import DurableSession, Entry

EVERY: Final = 50
"""One run of forwarded messages in so many, or one message, or one pair of packet ids."""


def drop() -> None:
    """Messages that another node forwarded are accepted, and some are not delivered."""
    _instead_of_delivering(lambda deliver, run, held: None)


def duplicate() -> None:
    """Some are delivered twice."""

    def twice(deliver: Deliver, run: Run, held: list[Run]) -> None:
        deliver(*run)
        deliver(*run)

    _instead_of_delivering(twice)


def reorder() -> None:
    """Some are delivered behind what comes after them."""
    _instead_of_delivering(lambda deliver, run, held: held.append(run))


def stale_fence() -> None:
    """A slot's store takes what a home writes that another one has deposed."""
    from flockmq.home import store

    _in_redis(store.FUNCTIONS, "if fence ~= before and fence ~= after then", "if false then")


def late_write() -> None:
    """The log takes what purged incarnations still write, routes of nodes that are gone; nobody purges them again."""
    from flockmq.cluster.membership import Membership
    from flockmq.rlog import committer

    mark = "local mark = marks[incarnation] or mark_of(keys, incarnation)"
    _in_redis(committer.FUNCTIONS, mark, f"{mark} or {{ number = first - 1 }}")
    setattr(Membership, Membership.missing.__name__, lambda members, strangers, now: set())


def settle() -> None:
    """A home settles some messages of sessions that last without having sent them."""
    from flockmq.session.durable import DurableSession
    from flockmq.session.journal import sequence_field

    send_first, count = DurableSession._send_first, itertools.count(1)

    def broken(session: DurableSession, inflight: dict[int, int], packet_id: int, entry: Entry) -> None:
        if next(count) % EVERY:
            send_first(session, inflight, packet_id, entry)
        else:
            session.journal.delete(session.client_id, sequence_field(entry.sequence))

    setattr(DurableSession, send_first.__name__, broken)


def forget() -> None:
    """Homes leave some QoS 2 messages without an answer, however often and wherever they are asked: by packet id, for
    slots move, and what has no answer is asked again."""
    from flockmq.home import wire
    from flockmq.home.residents import Residents

    ask = Residents.ask

    def broken(
        residents: Residents,
        client_id: bytes,
        token: int,
        place: tuple[int, int],
        question: wire.Question,
        answer: Callable[[bytes], None],
    ) -> None:
        if isinstance(question, wire.Receive) and not question.packet_id // 2 % EVERY:
            answer = _nobody
        ask(residents, client_id, token, place, question, answer)

    setattr(Residents, ask.__name__, broken)


def repeat() -> None:
    """A slot takes what it has taken before: couriers send again whatever they don't know to be accepted."""
    from flockmq.home.marks import Marks

    setattr(Marks, Marks.is_new.__name__, lambda marks, source, number: True)


BUGS: Final[dict[str, Callable[[], None]]] = {
    "drop": drop,
    "duplicate": duplicate,
    "reorder": reorder,
    "stale-fence": stale_fence,
    "late-write": late_write,
    "settle": settle,
    "forget": forget,
    "repeat": repeat,
}

Run = tuple[object, str, int, bytes]
Deliver = Callable[[object, str, int, bytes], None]


def install(bug: str) -> None:
    """Before the broker's `main`. Raises KeyError for an unknown one."""
    BUGS[bug]()


def _nobody(answer: bytes) -> None:
    """Is told."""


def _instead_of_delivering(strange: Callable[[Deliver, Run, list[Run]], None]) -> None:
    """`strange(deliver, run, held)` stands in for one delivery in EVERY; what it holds comes half as many later."""
    from flockmq.cluster.service import Cluster

    deliver = cast(Deliver, Cluster._forwarded)
    count, held = itertools.count(1), list[Run]()

    def broken(self: object, incarnation: str, version: int, chunk: bytes) -> None:
        run = (self, incarnation, version, chunk)
        number = next(count)
        if number % EVERY == 0:
            strange(deliver, run, held)
            return
        deliver(*run)
        if number % EVERY == EVERY // 2:
            while held:
                deliver(*held.pop())

    setattr(Cluster, deliver.__name__, broken)


def _in_redis(functions: str, right: str, wrong: str) -> None:
    """In the functions that every core loads into Redis."""
    assert right in functions, f"the functions have no {right!r} any more"
    _everywhere(functions, functions.replace(right, wrong))


def _everywhere(right: object, wrong: object) -> None:
    """In all modules of the broker that imported it."""
    import flockmq.node.run  # which imports them all

    assert flockmq.node.run
    for name, module in list(sys.modules.items()):
        if name.startswith("flockmq."):
            for attribute, value in list(vars(module).items()):
                if value is right:
                    setattr(module, attribute, wrong)
