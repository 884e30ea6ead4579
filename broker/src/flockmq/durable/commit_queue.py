"""Acknowledgements that a session may send only after Redis has committed the change behind them. No I/O.

A session writes its changes through its slot's writer, and requests a barrier at the end of the event-loop iteration.
Invariant: an acknowledgement is sent only after the barrier behind its change was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

_MS_PER_S: Final = 1000.0
_SOON_S: Final = 1e-9


@mypyc_attr(acyclic=True)
class CommitState:
    """What all sessions of one core share: which of them wrote something since their last barrier, and the conversion
    between the cluster's time and monotonic time.

    `wall_offset_s`: the cluster's time minus monotonic time, in seconds. `is_short`: as
    `SessionStore.core_is_short`. The slot manager sets both in each iteration.
    """

    __slots__ = ("is_short", "uncommitted", "wall_offset_s")

    def __init__(self, wall_offset_s: float) -> None:
        self.uncommitted: list[Callable[[], None]] = []
        self.wall_offset_s = wall_offset_s
        self.is_short: bool = False

    def request_barriers(self) -> None:
        """Request one barrier for each session that wrote something. Called at the end of an iteration or
        of a batch.
        """
        while self.uncommitted:
            self.uncommitted.pop()()

    def wall_ms(self, monotonic_s: float) -> int:
        return max(0, int((monotonic_s + self.wall_offset_s) * _MS_PER_S))

    def monotonic_s(self, wall_ms: int) -> float:
        """Negative for times before this machine's monotonic clock began."""
        return wall_ms / _MS_PER_S - self.wall_offset_s

    def expires_s(self, wall_ms: int) -> float:
        """The expiry as monotonic time. Never 0.0, because 0.0 means "never expires"."""
        return max(_SOON_S, self.monotonic_s(wall_ms))


@mypyc_attr(acyclic=True)
class Commit:
    """What waits for one barrier: messages up to a sequence number, and acknowledgements as kind << 16 | packet id."""

    __slots__ = ("effects", "sequence")

    def __init__(self, sequence: int, effects: list[int] | None) -> None:
        self.sequence = sequence
        self.effects = effects


@mypyc_attr(acyclic=True)
class CommitQueue:
    """The pending commits of one session. Barriers are answered in order."""

    __slots__ = ("_commits", "_effects")

    def __init__(self) -> None:
        self._effects: list[int] | None = None
        self._commits: list[Commit] | None = None

    def acknowledge(self, kind: int, packet_id: int) -> None:
        """Send this acknowledgement when all writes so far are committed."""
        effects = self._effects
        if effects is None:
            self._effects = effects = []
        effects.append(kind << 16 | packet_id)

    def has_more(self) -> bool:
        """True if an acknowledgement waits and no barrier was requested for it yet."""
        return self._effects is not None

    def close(self, sequence: int) -> None:
        """Assign what waits to the barrier that the session requests now."""
        commits = self._commits
        if commits is None:
            self._commits = commits = []
        commits.append(Commit(sequence, self._effects))
        self._effects = None

    def take(self) -> Commit:
        """The oldest barrier was answered: return what waited for it."""
        commits = self._commits
        assert commits is not None
        commit = commits.pop(0)
        if not commits:
            self._commits = None
        return commit

    def clear(self) -> None:
        self._effects = self._commits = None
