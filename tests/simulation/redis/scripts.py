"""Lua in Redis: libraries of functions and scripts of EVAL, run unchanged by Lua 5.1.

A script's commands are executed by `call`, which the server gives. What it wrote before it failed stays written.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]

from flockmq.redis.connection import Reply
from simulation.redis.keyspace import Arguments, CommandError, NotSimulatedError, Status

_ENVIRONMENT: Final = b"""
local call, pcall, register, pack = ...
struct = { pack = pack }
redis = { call = call, pcall = pcall }

function redis.error_reply(text)
  return { err = string.find(text, ' ', 1, true) and text or 'ERR ' .. text }
end

function redis.status_reply(text)
  return { ok = text }
end

function redis.register_function(given, callback)
  if type(given) == 'table' then
    register(given.function_name, given.callback, given.flags)
  else
    register(given, callback)
  end
end

-- What a script failed with, and where in its text. What redis.call raised is an object of Python.
local function failure(problem)
  local level, info = 2, debug.getinfo(2, 'Sl')
  while info and string.sub(info.source, 1, 6) ~= '@user_' do
    level = level + 1
    info = debug.getinfo(level, 'Sl')
  end
  if type(problem) == 'table' then
    problem = problem.err
  elseif type(problem) ~= 'userdata' then
    problem = 'ERR ' .. tostring(problem)
  end
  return { problem = problem, place = info and info.source .. ':' .. info.currentline or '' }
end

local function run(callback, keys, args)
  local is_done, reply = xpcall(function() return callback(keys, args) end, failure)
  return is_done, reply
end

local function script(text)
  local chunk, problem = loadstring(text, '@user_script')
  return chunk and function(keys, args)
    KEYS, ARGV = keys, args
    return chunk()
  end, problem or ''
end

local function library(text)
  local chunk, problem = loadstring(text, '@user_function')
  return chunk, problem or ''
end

local function table_of(...)
  return { ... }
end

return run, script, library, table_of
"""
_STACK_MAX: Final = 1000
"""How many values are handed over in a call: quicker than making a table, but Lua's stack is small."""
_SHEBANG: Final = re.compile(rb"#!lua(?: name=(?P<name>\w+))?(?: flags=(?P<flags>[\w,-]+))?\n")


class Script:
    """`is_bare`: without a shebang; nothing is known of what it may do before it does it."""

    def __init__(self, callback: Any, flags: Collection[str] = (), *, is_bare: bool = False) -> None:
        self.callback = callback
        self.is_bare = is_bare
        self.writes = "no-writes" not in flags
        self.grows = self.writes and "allow-oom" not in flags


class _Library(NamedTuple):
    text: bytes
    functions: dict[bytes, Script]


class Scripts:
    """What one server has loaded. `call` raises CommandError."""

    def __init__(self, call: Callable[[Arguments], Reply]) -> None:
        self._call = call
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._run, self._compile_script, self._compile_library, self._table_of = self._lua.execute(
            _ENVIRONMENT, self._call_from_lua, self._pcall_from_lua, self._register, _pack
        )
        self._ok = self._lua.table_from({b"ok": b"OK"})
        self._libraries: dict[bytes, _Library] = {}
        self._functions: dict[bytes, Script] = {}
        self._scripts: dict[bytes, Script] = {}
        self._registering: dict[bytes, Script] = {}

    def load(self, text: bytes) -> bytes:
        """FUNCTION LOAD REPLACE; the library's name. Raises CommandError."""
        for name, library in self._libraries.items():
            if library.text == text:
                return name
        name, functions = self._compile(text)
        self._libraries[name] = _Library(text, functions)
        self._functions = {}
        for library in self._libraries.values():
            self._functions |= library.functions
        return name

    def function(self, name: bytes) -> Script | None:
        return self._functions.get(name)

    def script(self, text: bytes) -> Script:
        """Raises CommandError if it isn't Lua."""
        script = self._scripts.get(text)
        if script is None:
            shebang, body = _shebang(text)
            callback, problem = self._compile_script(body)
            if callback is None:
                raise CommandError(f"ERR Error compiling script (new function): {problem.decode()}")
            flags = [] if shebang is None else _flags(shebang["flags"])
            script = self._scripts[text] = Script(callback, flags, is_bare=shebang is None)
        return script

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Reply:
        """Raises CommandError, also for an error that the script returns."""
        is_done, reply = self._run(script.callback, self._table(keys), self._table(args))
        if is_done:
            return self._from_lua(reply)
        problem, place = reply[b"problem"], reply[b"place"]
        if isinstance(problem, CommandError):
            text = str(problem)
        elif isinstance(problem, bytes):
            text = problem.decode(errors="replace")
        else:
            raise problem
        raise CommandError(f"{text} script: on {place.decode()}.")

    def _table(self, items: Sequence[bytes]) -> object:
        return self._table_of(*items) if len(items) <= _STACK_MAX else self._lua.table_from(items)

    def _compile(self, text: bytes) -> tuple[bytes, dict[bytes, Script]]:
        shebang, body = _shebang(text)
        if shebang is None or shebang["name"] is None:
            raise CommandError("ERR Missing library metadata")
        chunk, problem = self._compile_library(body)
        if chunk is None:
            raise CommandError(f"ERR Error compiling function: {problem.decode()}")
        self._registering = {}
        chunk()
        return shebang["name"], self._registering

    def _register(self, name: bytes, callback: object, flags: Any = None) -> None:
        self._registering[name] = Script(callback, () if flags is None else [flag.decode() for flag in flags.values()])

    def _call_from_lua(self, *args: object) -> object:
        reply = self._call([arg if type(arg) is bytes else _argument(arg) for arg in args])
        return reply if type(reply) is bytes else self._to_lua(reply)

    def _pcall_from_lua(self, *args: object) -> object:
        try:
            return self._call_from_lua(*args)
        except CommandError as error:
            return self._lua.table_from({b"err": str(error).encode()})

    def _to_lua(self, reply: Reply) -> object:
        if reply is None:
            return False
        if isinstance(reply, list):
            return self._lua.table_from([self._to_lua(each) for each in reply])
        if type(reply) is Status:
            return self._ok if reply == b"OK" else self._lua.table_from({b"ok": bytes(reply)})
        return reply

    def _from_lua(self, value: Any) -> Reply:
        if type(value) is bytes:
            return value
        if value is None or value is False:
            return None
        if isinstance(value, int | float):
            return int(value)
        if (error := value[b"err"]) is not None:
            raise CommandError(error.decode(errors="replace"))
        if (status := value[b"ok"]) is not None:
            return Status(status)
        replies: list[Reply] = []
        while (item := value[len(replies) + 1]) is not None:
            replies.append(self._from_lua(item))
        return replies


def _shebang(text: bytes) -> tuple[re.Match[bytes] | None, bytes]:
    """What it says, and the rest, with its lines at their numbers."""
    shebang = _SHEBANG.match(text)
    if shebang is None and text.startswith(b"#!"):
        raise NotSimulatedError(text.partition(b"\n")[0])
    return shebang, text if shebang is None else text[shebang.end() - 1 :]


def _flags(listed: bytes | None) -> list[str]:
    return [] if listed is None else listed.decode().split(",")


def _argument(value: object) -> bytes:
    match value:
        case bool():
            pass
        case int():
            return b"%d" % value
        case float():
            return b"%.17g" % value
    raise CommandError("ERR Lua redis lib command arguments must be strings or integers")


def _pack(layout: bytes, number: int) -> bytes:
    if layout != b">I4":
        raise NotSimulatedError(f"struct.pack({layout!r})")
    return struct.pack(">I", number)
