"""Runs one measurement in several processes, for a broker that one process can't keep busy."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Final

from flockmq.bench.errors import Failed
from flockmq.bench.plan import Sample
from flockmq.default_callbacks import ignore
from flockmq.errors import UserError

SUMS: Final = ("rate", "delivered", "lost", "repeated", "late", "connects")
READY_MAX_S: Final = 120.0
"""How long the first process waits until the last one is connected and subscribed."""

Measure = Callable[[int, Callable[[], None]], Sample]
"""Called with the number of the process, and a function to call when it is ready."""


def run(processes: int, measure: Measure) -> Sample:
    """Run it and combine the results: the sum of rates and counts, the maximum of all others. Raises Failed with the
    text of the first failure.
    """
    if processes == 1:
        return _completed(measure(0, ignore))
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
    except BrokenBarrierError:  # Another process failed and reports why.
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
    """Add the broker's CPU time per message or connection, if both are known."""
    if "broker_busy" in sample and sample["rate"]:
        sample["cpu_us"] = sample["broker_busy"] / sample["rate"] * 1e6
    return sample
