"""What one server does with a command, in one life of its process: refuse it or execute it, note what it changed, and
let go on who waited for that.

Refusals come in Redis' order: another node has the key, memory, too few replicas, a read-only replica, still loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from redis.asyncio.connection import DefaultParser
from redis.exceptions import RedisError

from flockmq.redis.connection import Reply
from simulation.redis.commands import COMMANDS, find_command, keys_of
from simulation.redis.keyspace import Arguments, Change, CommandError, NotSimulatedError, Status, integer
from simulation.redis.scripts import Script, Scripts
from simulation.redis.session import PENDING, Pending, Session, Wait
from simulation.redis.stream_commands import XRead

if TYPE_CHECKING:
    from simulation.redis.server import Server

_OOM: Final = "OOM command not allowed when used memory > 'maxmemory'."
_NOREPLICAS: Final = "NOREPLICAS Not enough good replicas to write."
_READONLY: Final = "READONLY You can't write against a read only replica."
_LOADING: Final = "LOADING Redis is loading the dataset in memory"
_NO_WAIT: Final = (
    "ERR WAIT cannot be used with replica instances. Please also note that if a replica is configured to be writable "
    "(which is not the default) writes to replicas are just local and are not propagated."
)
_UNBLOCKED: Final = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
_VERSION: Final = "7.2.4"
MAXMEMORY: Final = 1024**3
"""Bytes."""
_NO_WRITES: Final = "ERR Write commands are not allowed from read-only scripts."

parse_error: Final[Callable[[str], RedisError]] = DefaultParser.parse_error
"""The exception that redis-py makes of an error's text."""


class Dispatcher:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._keys = server.keys
        self._scripts = Scripts(self._execute_for_script)
        self._script: Script | None = None
        self._waiting: dict[bytes | None, dict[Session, None]] = {}
        """By the stream that they wait for; None: for a replica."""
        self._own: dict[bytes, Callable[[Session, Arguments], Reply | Pending]] = {
            b"CLUSTER": self._cluster,
            b"EVAL": self._eval,
            b"FCALL": self._fcall,
            b"FUNCTION": self._function,
            b"INFO": self._info,
            b"ROLE": self._role,
            b"WAIT": self._wait,
            b"XREAD": self._xread,
        }

    def execute(self, session: Session, args: Arguments) -> Reply | RedisError | Pending:
        keys = self._keys
        keys.now_us = round(self._server.now_s() * 1_000_000)
        try:
            own = self._own.get(args[0].upper())
            reply = self._execute(args) if own is None else own(session, args)
        except CommandError as error:
            failure = parse_error(str(error))
            if keys.changes:
                self._changed(session)
            return failure
        if keys.changes:
            self._changed(session)
        return bytes(reply) if type(reply) is Status else reply

    def reload(self, history: Iterable[Sequence[Change]]) -> None:
        """Hold nothing but this."""
        self._scripts = Scripts(self._execute_for_script)
        self.replay(history)

    def replay(self, records: Iterable[Sequence[Change]]) -> None:
        """Make again what was recorded here or on another server. Nothing expires meanwhile."""
        keys = self._keys
        keys.now_us = 0
        for record in records:
            for change in record:
                if change[0] == b"FUNCTION":
                    self._scripts.load(change[-1])
                else:
                    COMMANDS[change[0].upper()].run(keys, change)
        keys.changes = []
        self._wake_readers()

    def _execute(self, args: Arguments) -> Reply:
        command = find_command(args)
        keys = () if self._server.router is None else keys_of(args, command)
        self._check(keys, writes=command.writes, grows=command.grows)
        return command.run(self._keys, args)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _check(self, keys: Sequence[bytes], *, writes: bool = False, grows: bool = False) -> None:
        """Raises CommandError for what can't be done now, or not here."""
        server = self._server
        if server.router is not None and keys:
            server.router.check(keys)
        if grows and server.used_part >= 1.0:
            raise CommandError(_OOM)
        if writes:
            if server.replication.primary is not None:
                raise CommandError(_READONLY)
            if server.replication.good_replicas < server.min_replicas_to_write:
                raise CommandError(_NOREPLICAS)
        if server.is_loading:
            raise CommandError(_LOADING)

    # --- scripts ------------------------------------------------------------------------------------------------------

    def _function(self, _: Session, args: Arguments) -> Reply:
        """FUNCTION LOAD REPLACE."""
        if [word.upper() for word in args[1:3]] != [b"LOAD", b"REPLACE"]:
            raise NotSimulatedError(args[:3])
        self._check((), writes=True, grows=True)
        name = self._scripts.load(args[3])
        self._keys.changes.append(args)
        return name

    def _fcall(self, _: Session, args: Arguments) -> Reply:
        script = self._scripts.function(args[1])
        if script is None:
            raise CommandError("ERR Function not found")
        return self._run(script, args)

    def _eval(self, _: Session, args: Arguments) -> Reply:
        return self._run(self._scripts.script(args[1]), args)

    def _run(self, script: Script, args: Arguments) -> Reply:
        end = 3 + integer(args[2])
        keys = args[3:end]
        if script.is_bare:
            self._check(keys)
        else:
            self._check(keys, writes=script.writes, grows=script.grows)
        self._script = script
        return self._scripts.run(script, keys, args[end:])

    def _execute_for_script(self, args: Arguments) -> Reply:
        script, command = self._script, find_command(args)
        assert script is not None
        if command.writes and not script.writes:
            raise CommandError(_NO_WRITES)
        if script.is_bare:
            self._check((), writes=command.writes, grows=command.grows)
        if self._server.router is not None:
            self._server.router.check_in_script(keys_of(args, command))
        return command.run(self._keys, args)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def unblocked(self, session: Session, wait: Wait) -> None:
        for key in wait.keys or (None,):
            del self._waiting[key][session]

    def replicas_acknowledged(self) -> None:
        self._retry(None)

    def disconnect_blocked(self) -> None:
        """It is a replica from here on."""
        for session in self._blocked():
            session.end(parse_error(_UNBLOCKED))

    def refuse_blocked(self) -> None:
        """This node of a cluster doesn't serve their keys any more."""
        router = self._server.router
        assert router is not None
        for session in self._blocked():
            assert session.wait is not None
            try:
                router.check(session.wait.keys)
            except CommandError as error:
                session.unblock(parse_error(str(error)))

    def _blocked(self) -> list[Session]:
        return list(dict.fromkeys(session for waiting in self._waiting.values() for session in waiting))

    def _xread(self, session: Session, args: Arguments) -> Reply | Pending:
        asked = XRead.parse(args)
        self._check(asked.streams)
        reply = asked.found(self._keys)
        if reply is not None or asked.block_ms is None:
            return reply
        wait = Wait(asked.streams, lambda: asked.found(self._keys) or PENDING, lambda: None)
        return self._block(session, wait, asked.block_ms)

    def _wait(self, session: Session, args: Arguments) -> Reply | Pending:
        """Until so many replicas have what this session wrote last."""
        wanted, timeout_ms, written_to = integer(args[1]), integer(args[2]), session.written_to
        self._check(())
        replication = self._server.replication
        if replication.primary is not None:
            raise CommandError(_NO_WAIT)

        def have_it() -> int:
            return replication.acknowledged(written_to)

        if have_it() >= wanted:
            return have_it()
        wait = Wait((), lambda: have_it() if have_it() >= wanted else PENDING, have_it)
        return self._block(session, wait, timeout_ms)

    def _block(self, session: Session, wait: Wait, timeout_ms: int) -> Reply | Pending:
        """Unless nobody is there any more who would hear the reply."""
        if not session.is_open:
            return wait.give_up()
        for key in wait.keys or (None,):
            self._waiting.setdefault(key, {})[session] = None
        session.block(wait, timeout_ms)
        return PENDING

    def _changed(self, session: Session) -> None:
        record, self._keys.changes = self._keys.changes, []
        self._server.history.append(record)
        session.written_to = len(self._server.history)
        self._wake_readers()

    def _wake_readers(self) -> None:
        if self._keys.grown:
            grown, self._keys.grown = self._keys.grown, []
            for key in dict.fromkeys(grown):
                self._retry(key)

    def _retry(self, key: bytes | None) -> None:
        for session in list(self._waiting.get(key, ())):
            assert session.wait is not None
            try:
                reply = session.wait.retry()
            except CommandError as error:
                session.unblock(parse_error(str(error)))
            else:
                if not isinstance(reply, Pending):
                    session.unblock(reply)

    # --- what it says of itself ---------------------------------------------------------------------------------------

    def _info(self, _: Session, args: Arguments) -> Reply:
        match [word.lower() for word in args[1:]]:
            case [b"server"]:
                lines = ["# Server", f"redis_version:{_VERSION}", f"run_id:{self._server.run_id}"]
            case [b"replication"]:
                lines = ["# Replication", *self._server.replication.info()]
            case [b"memory"]:
                used = round(self._server.used_part * MAXMEMORY)
                lines = ["# Memory", f"used_memory:{used}", f"maxmemory:{MAXMEMORY}"]
            case _:
                raise NotSimulatedError(args)
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _role(self, _: Session, __: Arguments) -> Reply:
        return self._server.replication.role()

    def _cluster(self, _: Session, args: Arguments) -> Reply:
        if self._server.router is None:
            raise CommandError("ERR This instance has cluster support disabled")
        if [word.upper() for word in args[1:]] != [b"SLOTS"]:
            raise NotSimulatedError(args)
        return self._server.router.slots()
