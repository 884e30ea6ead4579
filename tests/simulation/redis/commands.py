"""The commands that need nothing but the keys: the ones that the broker and its functions use, with the arguments that
they give them. Each gets the command as it came, and answers what Redis answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple
from zlib import crc32

from flockmq.redis.connection import Reply
from simulation.redis.keyspace import (
    OK,
    Arguments,
    CommandError,
    Hash,
    Keyspace,
    NotSimulatedError,
    Set,
    SortedSet,
    Status,
    integer,
)
from simulation.redis.stream import Stream
from simulation.redis.stream_commands import xadd, xlen, xrange, xrevrange, xtrim

_SCAN_COUNT: Final = 10
_SAMPLES: Final = 5
_KEY_BYTES: Final = 35


class Command(NamedTuple):
    """`arity`: as Redis counts it, with the name; negative: at least. `grows`: refused by a Redis that is full."""

    run: Callable[[Keyspace, Arguments], Reply]
    arity: int
    writes: bool = False
    grows: bool = False
    first_key: int = 1
    last_key: int = 1


# --- strings ----------------------------------------------------------------------------------------------------------


def _get(keys: Keyspace, args: Arguments) -> Reply:
    return keys.get(args[1], bytes)


def _set(keys: Keyspace, args: Arguments) -> Reply:
    _, key, value, *options = args
    match options:
        case []:
            at_ms = None
        case [b"PX", text]:
            if (ttl_ms := integer(text)) <= 0:
                raise CommandError("ERR invalid expire time in 'set' command")
            at_ms = keys.now_us // 1000 + ttl_ms
        case [b"PXAT", text]:
            at_ms = integer(text)
        case _:
            raise NotSimulatedError(args)
    keys.values[key] = value
    if at_ms is None:
        keys.expires_at_ms.pop(key, None)
        keys.changes.append(args)
    else:
        keys.expires_at_ms[key] = at_ms
        keys.changes.append([b"SET", key, value, b"PXAT", b"%d" % at_ms])
    return OK


def _incr(keys: Keyspace, args: Arguments) -> Reply:
    before = keys.get(args[1], bytes)
    value = (0 if before is None else integer(before)) + 1
    keys.values[args[1]] = b"%d" % value
    keys.changes.append(args)
    return value


def _pexpire(keys: Keyspace, args: Arguments) -> Reply:
    at_ms = keys.now_us // 1000 + integer(args[2])
    return _pexpireat(keys, [b"PEXPIREAT", args[1], b"%d" % at_ms])


def _pexpireat(keys: Keyspace, args: Arguments) -> Reply:
    _, key, text = args
    if keys.find(key) is None:
        return 0
    at_ms = integer(text)
    if keys.now_us // 1000 >= at_ms and keys.expires_keys:
        keys.remove(key)
        keys.changes.append([b"DEL", key])
    else:
        keys.expires_at_ms[key] = at_ms
        keys.changes.append(args)
    return 1


def _del(keys: Keyspace, args: Arguments) -> Reply:
    removed = [key for key in args[1:] if keys.find(key) is not None and keys.remove(key)]
    if removed:
        keys.changes.append([b"DEL", *removed])
    return len(removed)


# --- hashes and sets --------------------------------------------------------------------------------------------------


def _hset(keys: Keyspace, args: Arguments) -> Reply:
    if len(args) % 2:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    fields = keys.make(args[1], Hash)
    before = len(fields)
    fields.update(zip(args[2::2], args[3::2], strict=True))
    keys.changes.append(args)
    return len(fields) - before


def _hget(keys: Keyspace, args: Arguments) -> Reply:
    fields = keys.get(args[1], Hash)
    return None if fields is None else fields.get(args[2])


def _hmget(keys: Keyspace, args: Arguments) -> Reply:
    fields = keys.get(args[1], Hash) or Hash()
    return [fields.get(field) for field in args[2:]]


def _hdel(keys: Keyspace, args: Arguments) -> Reply:
    return _drop(keys, args, keys.get(args[1], Hash))


def _hscan(keys: Keyspace, args: Arguments) -> Reply:
    fields = keys.get(args[1], Hash) or Hash()
    cursor, page = _page(keys, fields, args)
    return [cursor, list(chain.from_iterable((field, fields[field]) for field in page))]


def _sadd(keys: Keyspace, args: Arguments) -> Reply:
    members = keys.make(args[1], Set)
    before = len(members)
    members.update(dict.fromkeys(args[2:]))
    if len(members) > before:
        keys.changes.append(args)
    return len(members) - before


def _srem(keys: Keyspace, args: Arguments) -> Reply:
    return _drop(keys, args, keys.get(args[1], Set))


def _sscan(keys: Keyspace, args: Arguments) -> Reply:
    cursor, page = _page(keys, keys.get(args[1], Set) or Set(), args)
    return [cursor, list(page)]


def _drop(keys: Keyspace, args: Arguments, members: Hash | Set | None) -> int:
    """Members of a hash or set; with the last one it goes itself."""
    if members is None:
        return 0
    before = len(members)
    for member in args[2:]:
        members.pop(member, None)
    if not members:
        keys.remove(args[1])
    if len(members) < before:
        keys.changes.append(args)
    return before - len(members)


def _page(keys: Keyspace, members: Hash | Set, args: Arguments) -> tuple[bytes, Iterable[bytes]]:
    """The next cursor and what comes before it. Whoever is there all the time comes up, whatever changes meanwhile."""
    cursor, count, seed = integer(args[2]), _SCAN_COUNT, keys.scan_seed
    match args[3:]:
        case []:
            pass
        case [option, text] if option.upper() == b"COUNT":
            count = integer(text)
        case _:
            raise NotSimulatedError(args)
    if not cursor and len(members) <= count:
        return b"0", members
    waiting = sorted((place, member) for member in members if (place := crc32(member, seed) + 1) >= cursor)
    if len(waiting) <= count:
        return b"0", [member for _, member in waiting]
    end = waiting[count][0]
    if end == waiting[0][0]:
        raise NotSimulatedError(args)
    return b"%d" % end, [member for place, member in waiting if place < end]


# --- sorted sets ------------------------------------------------------------------------------------------------------


def _zadd(keys: Keyspace, args: Arguments) -> Reply:
    _, key, score_text, member = args
    try:
        score = float(score_text)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    scores = keys.make(key, SortedSet)
    added, changed = member not in scores, scores.get(member) != score
    scores[member] = score
    if changed:
        keys.changes.append(args)
    return int(added)


def _zscore(keys: Keyspace, args: Arguments) -> Reply:
    score = (keys.get(args[1], SortedSet) or SortedSet()).get(args[2])
    if score is None:
        return None
    return b"%d" % score if score.is_integer() else repr(score).encode()


def _zremrangebyrank(keys: Keyspace, args: Arguments) -> Reply:
    first, last = integer(args[2]), integer(args[3])
    scores = keys.get(args[1], SortedSet)
    if scores is None:
        return 0
    first = max(0, first + len(scores) if first < 0 else first)
    last = last + len(scores) if last < 0 else last
    doomed = sorted(scores, key=lambda member: (scores[member], member))[first : max(0, last + 1)]
    for member in doomed:
        del scores[member]
    if not scores:
        keys.remove(args[1])
    if doomed:
        keys.changes.append(args)
    return len(doomed)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _time(keys: Keyspace, _: Arguments) -> Reply:
    seconds, rest_us = divmod(keys.now_us, 1_000_000)
    return [b"%d" % seconds, b"%d" % rest_us]


def _ping(_: Keyspace, args: Arguments) -> Reply:
    return args[1] if len(args) > 1 else Status(b"PONG")


def _memory(keys: Keyspace, args: Arguments) -> Reply:
    """MEMORY USAGE of a stream, or of a hash or set: what is in it, while Redis counts more. SAMPLES 0: of all that it
    has."""
    match [word.upper() for word in args[1:2]], args[3:]:
        case [b"USAGE"], []:
            samples = _SAMPLES
        case [b"USAGE"], [option, text] if option.upper() == b"SAMPLES":
            samples = integer(text)
        case _:
            raise NotSimulatedError(args)
    match keys.find(args[2]):
        case None:
            return None
        case Stream() as stream:
            size = stream.size(samples or None)
        case Hash() as fields if not samples:
            size = sum(map(len, chain.from_iterable(fields.items())))
        case Set() as members if not samples:
            size = sum(map(len, members))
        case bytes(value):
            size = len(value)
        case _:
            raise NotSimulatedError(args)
    return _KEY_BYTES + len(args[2]) + size


COMMANDS: Final[dict[bytes, Command]] = {
    b"DEL": Command(_del, -2, writes=True, last_key=-1),
    b"GET": Command(_get, 2),
    b"HDEL": Command(_hdel, -3, writes=True),
    b"HGET": Command(_hget, 3),
    b"HMGET": Command(_hmget, -3),
    b"HSCAN": Command(_hscan, -3),
    b"HSET": Command(_hset, -4, writes=True, grows=True),
    b"INCR": Command(_incr, 2, writes=True, grows=True),
    b"MEMORY": Command(_memory, -3, first_key=2, last_key=2),
    b"PEXPIRE": Command(_pexpire, 3, writes=True),
    b"PEXPIREAT": Command(_pexpireat, 3, writes=True),
    b"PING": Command(_ping, -1, first_key=0),
    b"SADD": Command(_sadd, -3, writes=True, grows=True),
    b"SET": Command(_set, -3, writes=True, grows=True),
    b"SREM": Command(_srem, -3, writes=True),
    b"SSCAN": Command(_sscan, -3),
    b"TIME": Command(_time, 1, first_key=0),
    b"UNLINK": Command(_del, -2, writes=True, last_key=-1),
    b"XADD": Command(xadd, -5, writes=True, grows=True),
    b"XLEN": Command(xlen, 2),
    b"XRANGE": Command(xrange, -4),
    b"XREVRANGE": Command(xrevrange, -4),
    b"XTRIM": Command(xtrim, -4, writes=True),
    b"ZADD": Command(_zadd, 4, writes=True, grows=True),
    b"ZREMRANGEBYRANK": Command(_zremrangebyrank, 4, writes=True),
    b"ZSCORE": Command(_zscore, 3),
}


def find_command(args: Arguments) -> Command:
    """Raises CommandError for a wrong number of arguments."""
    command = COMMANDS.get(args[0]) or COMMANDS.get(args[0].upper())
    if command is None:
        raise NotSimulatedError(args)
    if len(args) != command.arity if command.arity > 0 else len(args) < -command.arity:
        raise CommandError(f"ERR wrong number of arguments for '{args[0].decode().lower()}' command")
    return command


def keys_of(args: Arguments, command: Command) -> Arguments:
    if not command.first_key:
        return []
    return args[command.first_key :] if command.last_key < 0 else args[command.first_key : command.last_key + 1]
