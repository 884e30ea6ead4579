"""What is said when it is committed, and whose turn it is to commit. Pure.

A session puts what changes into its journal, and asks for a barrier when the turn ends. What always holds: what the
client may take for done is said when the barrier behind it was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

_MS_PER_S: Final = 1000.0
_SOON_S: Final = 1e-9


@mypyc_attr(acyclic=True)
class Ledger:
    """What the sessions of one core share: who put something that no barrier stands behind yet, and both clocks.

    `wall_offset_s` is the cluster's time less monotonic time, in seconds; whoever runs the turn sets it.
    """

    __slots__ = ("unsealed", "wall_offset_s")

    def __init__(self, wall_offset_s: float) -> None:
        self.unsealed: list[Callable[[], None]] = []
        self.wall_offset_s = wall_offset_s

    def seal(self) -> None:
        """At the end of a turn, or of a batch of messages: one barrier for each session that put something."""
        while self.unsealed:
            self.unsealed.pop()()

    def wall_ms(self, monotonic_s: float) -> int:
        return max(0, int((monotonic_s + self.wall_offset_s) * _MS_PER_S))

    def monotonic_s(self, wall_ms: int) -> float:
        """Below zero for what was before this machine's monotonic clock began."""
        return wall_ms / _MS_PER_S - self.wall_offset_s

    def expires_s(self, wall_ms: int) -> float:
        """Never 0.0, which means never."""
        return max(_SOON_S, self.monotonic_s(wall_ms))


@mypyc_attr(acyclic=True)
class Commit:
    """What waits for one barrier: messages up to a sequence, and what is to be said, as kind << 16 | packet id."""

    __slots__ = ("effects", "sequence")

    def __init__(self, sequence: int, effects: list[int] | None) -> None:
        self.sequence = sequence
        self.effects = effects


@mypyc_attr(acyclic=True)
class CommitQueue:
    """Of one session. Barriers are answered in their order."""

    __slots__ = ("_commits", "_effects")

    def __init__(self) -> None:
        self._effects: list[int] | None = None
        self._commits: list[Commit] | None = None

    def say(self, kind: int, packet_id: int) -> None:
        """When all that was put so far is committed."""
        effects = self._effects
        if effects is None:
            self._effects = effects = []
        effects.append(kind << 16 | packet_id)

    def has_more(self) -> bool:
        """Something is to be said that no barrier stands behind yet."""
        return self._effects is not None

    def close(self, sequence: int) -> None:
        """A barrier is asked for."""
        commits = self._commits
        if commits is None:
            self._commits = commits = []
        commits.append(Commit(sequence, self._effects))
        self._effects = None

    def take(self) -> Commit:
        """The first barrier was answered."""
        commits = self._commits
        assert commits is not None
        commit = commits.pop(0)
        if not commits:
            self._commits = None
        return commit

    def clear(self) -> None:
        self._effects = self._commits = None
