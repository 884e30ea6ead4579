"""What all clients of a run share: where they write down what they see, the nodes that they may try, the one source of
chance, the clock, and the hands of an operator.

Nothing in tests/load asks for another clock, another chance or another network than the running loop's and these.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from load.history import AnyEvent


class Node(NamedTuple):
    name: str
    address: tuple[str, int]


class AdminFailed(Exception):
    """The node's management didn't say yes: it may have done it, or not."""


class Admin(Protocol):
    """What an operator does at one node; each returns when the node has acknowledged it, or raises AdminFailed. To do
    it twice, or to undo what was never done, goes well too."""

    async def ban(self, node: str, client: str) -> None: ...

    async def lift(self, node: str, client: str) -> None:
        """A node that hasn't read of the ban yet mustn't say yes as if there were none."""

    async def deny(self, node: str, prefix: str) -> None:
        """Nobody may do `denied_action` (judges.topics) to `prefix` and what is below it."""

    async def allow(self, node: str, prefix: str) -> None: ...


class Limits(NamedTuple):
    """What the nodes are configured with, as far as clients must know it."""

    max_mqueue_len: int = 1000


@dataclass
class Stage:
    record: Callable[[AnyEvent], None]
    nodes: Callable[[], Sequence[Node]]
    """That clients may try now, at least one."""
    random: random.Random
    admin: Admin | None = None
    """Without one, no feature that needs it can be played."""
    limits: Limits = field(default_factory=Limits)
    connections: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """The numbers of connections, in the order in which they are opened."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()
