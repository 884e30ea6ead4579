"""One redis-server process with an append-only file, `appendfsync always` and `maxmemory-policy noeviction`.

It is one thread. A turn executes all commands that came, in their order; then what they changed goes to disk; only then
is anybody answered, and only then do the replicas get the changes. While an fsync is under way nothing else happens. An
fsync that fails ends the process, in Redis as in Valkey: what was executed can't be taken back.

On disk is a list of records, one for each command that changed anything: all of it survives a crash, or nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol
from zlib import crc32

from flockmq.redis.connection import Reply
from simulation.redis.dispatch import Dispatcher
from simulation.redis.keyspace import Change, Keyspace
from simulation.redis.replication import Replication
from simulation.redis.session import Answer, Answers, Session

Record = list[Change]
"""What one command changed."""
Saved = tuple[Record, ...]
"""A copy of what was on disk."""

_RUN_ID_BITS: Final = 160


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What an event loop offers. The callbacks are the server's own: they run whatever becomes of who caused them."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Handle: ...


class Router(Protocol):
    """What one node of a cluster knows of the hash slots."""

    def check(self, keys: Sequence[bytes]) -> None:
        """Raises CommandError for keys that are not to be used here."""

    def check_in_script(self, keys: Sequence[bytes]) -> None:
        """The same, with what a script is told."""

    def slots(self) -> Reply:
        """CLUSTER SLOTS."""


class Server:
    """Runs at once. `now_s` is its own wall clock: it may be wrong, and may jump. For tests to turn:

    - `fsync_s`: how long an fsync takes; `fsync_stalls`: none ends; `fsync_fails`: none succeeds;
    - `loading_s`: how long it reads its file at a start, and answers LOADING;
    - `used_part`: of `maxmemory`; from 1 on it is full;
    - `min_replicas_to_write`: it takes no writes with fewer replicas.
    """

    def __init__(
        self, name: str, address: tuple[str, int], timers: Timers, random: Random, now_s: Callable[[], float]
    ) -> None:
        self.name = name
        self.address = address
        self.timers = timers
        self.random = random
        self.now_s = now_s
        self.fsync_s = 0.0
        self.fsync_fails = False
        self.loading_s = 0.0
        self.used_part = 0.0
        self.min_replicas_to_write = 0
        self.is_running = False
        self.is_loading = False
        self.run_id = ""
        self.router: Router | None = None
        """In a cluster: which keys it has."""
        self.keys = Keyspace()
        self.history: list[Record] = []
        self.synced = 0
        """How many records are on disk."""
        self.sessions: dict[Session, None] = {}
        self.replication = Replication(self)
        self.dispatcher = Dispatcher(self)
        self._fsync_stalls = False
        self._is_stalled = False
        self._fsync: Handle | None = None
        self._turn: Handle | None = None
        self._is_busy = False
        self._inbox: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._answers: list[tuple[Session, Answer, Answers]] = []
        self._ending: list[Session] = []
        self.start()

    # --- clients ------------------------------------------------------------------------------------------------------

    def connect(self) -> Session:
        assert self.is_running
        session = Session(self)
        self.sessions[session] = None
        return session

    def answer(self, session: Session, answer: Answer, replies: Answers) -> None:
        """At the end of the turn."""
        self._answers.append((session, answer, replies))

    def hang_up(self, session: Session) -> None:
        """At the end of the turn, behind the answers."""
        self._ending.append(session)

    def disconnect_clients(self) -> None:
        """CLIENT KILL TYPE normal: no farewell."""
        for session in list(self.sessions):
            session.lose()

    # --- turns --------------------------------------------------------------------------------------------------------

    @property
    def responds(self) -> bool:
        """It runs, and isn't held up by its disk."""
        return self.is_running and not self._is_stalled

    def post(self, event: Callable[..., object], *args: object) -> None:
        """Something for the server's thread to do, as soon as it can; nothing comes of it if it crashes before."""
        if self.is_running:
            self._inbox.append((event, args))
            self._wake()

    def _wake(self) -> None:
        if not self._is_busy and self._inbox:
            self._is_busy = True
            self._turn = self.timers.call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._turn = None
        inbox = self._inbox
        while inbox:
            event, args = inbox.popleft()
            event(*args)
        if self.synced == len(self.history):
            self._end_turn()
        elif self.fsync_s:
            self._fsync = self.timers.call_later(self.fsync_s, self._fsynced)
        else:
            self._fsynced()

    def _fsynced(self) -> None:
        self._fsync = None
        if self.fsync_fails:
            self.crash(keeps_unsynced=True)
        elif self._fsync_stalls:
            self._is_stalled = True
        else:
            self.synced = len(self.history)
            self._end_turn()

    def _end_turn(self) -> None:
        self.replication.spread()
        life = self.run_id
        answers, self._answers = self._answers, []
        for session, answer, replies in answers:
            if session.is_open:
                answer(replies)
        ending, self._ending = self._ending, []
        for session in ending:
            session.lose()
        if self.is_running and self.run_id == life:
            self._is_busy = False
            self._wake()

    # --- disk ---------------------------------------------------------------------------------------------------------

    @property
    def fsync_stalls(self) -> bool:
        return self._fsync_stalls

    @fsync_stalls.setter
    def fsync_stalls(self, stalls: bool) -> None:
        self._fsync_stalls = stalls
        if self._is_stalled and not stalls:
            self._is_stalled = False
            self._fsync = self.timers.call_later(self.fsync_s, self._fsynced)

    def crash(self, *, keeps_unsynced: bool = False) -> None:
        """SIGKILL: clients get no answer. Of what was not synced a part survives in the page cache, if it is kept."""
        if not self.is_running:
            return
        self.is_running = self._is_stalled = False
        for handle in (self._turn, self._fsync):
            if handle is not None:
                handle.cancel()
        unsynced = len(self.history) - self.synced
        self.synced += self.random.randint(0, unsynced) if keeps_unsynced else 0
        del self.history[self.synced :]
        self._inbox.clear()
        self._answers.clear()
        self._ending.clear()
        self.replication.stop()
        self.disconnect_clients()

    def start(self) -> None:
        """As it was on disk."""
        if self.is_running:
            return
        self.is_running = True
        self.run_id = f"{self.random.getrandbits(_RUN_ID_BITS):040x}"
        self.keys.scan_seed = crc32(self.run_id.encode())
        self._turn = self._fsync = None
        self._is_busy = False
        self.dispatcher = Dispatcher(self)
        self.load(self.history)
        self.is_loading = bool(self.loading_s)
        if self.is_loading:
            self.timers.call_later(self.loading_s, self._loaded, self.run_id)
        self.replication.start()

    def load(self, history: list[Record]) -> None:
        """Hold this, on disk too, and nothing else."""
        self.history = list(history)
        self.synced = len(history)
        self.keys.clear()
        self.dispatcher.reload(self.history)

    def keep(self) -> Saved:
        """A copy of what is on disk."""
        return tuple(self.history[: self.synced])

    def restore(self, saved: Saved) -> None:
        """An older copy is on disk, while it is down."""
        assert not self.is_running
        self.history = list(saved)
        self.synced = len(saved)

    def empty(self) -> None:
        """Nothing is on disk, while it is down."""
        self.restore(())

    def _loaded(self, run_id: str) -> None:
        if self.run_id == run_id:
            self.is_loading = False

    # --- replication --------------------------------------------------------------------------------------------------

    @property
    def replication_is_cut(self) -> bool:
        """Nothing comes from the primary; afterwards it goes on from where it was."""
        return self.replication.is_cut

    @replication_is_cut.setter
    def replication_is_cut(self, is_cut: bool) -> None:
        self.replication.is_cut = is_cut

    def replicate_from(self, primary: Server, lag_s: Callable[[], float]) -> None:
        """Each batch of records, and each acknowledgement, takes `lag_s()`."""
        self.replication.lag_s = lag_s
        self.replication.follow(primary)

    def promote(self, *, with_rest: bool = False) -> None:
        """It is a primary, with what it has applied; `with_rest`: with all that its primary has on disk."""
        if with_rest:
            self.replication.catch_up()
        self.replication.lead()
        self.post(_nothing)  # what it got goes to its disk

    def demote(self, to: Server) -> None:
        """It is a replica, and loses what the new primary lacks. Clients that it kept waiting are sent away."""
        self.replicate_from(to, to.replication.lag_s)


def _nothing() -> None:
    pass
