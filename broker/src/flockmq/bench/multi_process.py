"""One measurement by many processes at once, for a broker that one process can't keep busy."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Final

from flockmq.bench.errors import Failed
from flockmq.bench.plan import Sample
from flockmq.errors import UserError

SUMS: Final = ("rate", "delivered", "lost", "repeated", "late", "connects")
READY_MAX_S: Final = 120.0
"""How long the first wait until the last is connected and subscribed."""

Measure = Callable[[int, Callable[[], None]], Sample]
"""Called with the process' number and what to call when it is ready."""


def run(processes: int, measure: Measure) -> Sample:
    """Rates and counts of all added up; of the rest the highest. Raises Failed with the first failure's words."""
    if processes == 1:
        return _completed(measure(0, lambda: None))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes, timeout=READY_MAX_S)
    members = []
    for number in range(processes):
        ours, theirs = context.Pipe(duplex=False)
        member = context.Process(target=_member, args=(number, measure, barrier, theirs), daemon=True)
        member.start()
        theirs.close()
        members.append((member, ours))
    answers = [_answer(pipe) for _, pipe in members]
    for member, _ in members:
        member.join()
    failures = [answer for answer in answers if isinstance(answer, str)]
    if failures:
        raise Failed(next((why for why in failures if why), "the processes weren't ready together"))
    return _completed(_together([answer for answer in answers if not isinstance(answer, str)]))


def _member(number: int, measure: Measure, barrier: Barrier, pipe: Connection) -> None:
    def ready() -> None:
        barrier.wait()

    try:
        pipe.send(measure(number, ready))
    except UserError as error:
        barrier.abort()
        pipe.send(str(error))
    except BrokenBarrierError:  # another one failed and says why
        pipe.send("")


def _answer(pipe: Connection) -> Sample | str:
    try:
        answer: Sample | str = pipe.recv()
    except EOFError:
        return "a process of the load ended without a word"
    return answer


def _together(samples: Sequence[Sample]) -> Sample:
    names = samples[0].keys()
    return {name: (sum if name in SUMS else max)(sample[name] for sample in samples) for name in names}


def _completed(sample: Sample) -> Sample:
    """With the broker's processor time for one message or connection, where both are known."""
    if "broker_busy" in sample and sample["rate"]:
        sample["cpu_us"] = sample["broker_busy"] / sample["rate"] * 1e6
    return sample
