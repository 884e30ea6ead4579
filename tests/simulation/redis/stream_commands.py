"""Commands on streams, with the arguments that the broker gives them. Each gets the command as it came."""

from __future__ import annotations

from typing import Final, NamedTuple

from flockmq.redis.connection import Reply
from simulation.redis.keyspace import Arguments, CommandError, Keyspace, NotSimulatedError, integer
from simulation.redis.stream import END, PART_MAX, START, Id, Stream

_INVALID_ID: Final = "ERR Invalid stream ID specified as stream command argument"
_TOO_SMALL: Final = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
_UNBALANCED: Final = "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified."
_ENDS: Final = {b"-": START, b"+": END}


def xadd(keys: Keyspace, args: Arguments) -> Reply:
    key, wanted, fields = args[1], args[2], args[3:]
    if len(fields) % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    if wanted.endswith(b"*"):
        generation = None if wanted == b"*" else _part(wanted.removesuffix(b"-*"))
        stream = keys.make(key, Stream)
        stream_id = _next_id(stream.last, generation, keys.now_us // 1000)
    else:
        stream_id = parse_id(wanted)
        if stream_id == START:
            raise CommandError("ERR The ID specified in XADD must be greater than 0-0")
        stream = keys.make(key, Stream)
    if stream_id <= stream.last:
        raise CommandError(_TOO_SMALL)
    text = stream.append(stream_id, fields)
    keys.changes.append([b"XADD", key, text, *fields])
    keys.grown.append(key)
    return text


def xlen(keys: Keyspace, args: Arguments) -> Reply:
    stream = keys.get(args[1], Stream)
    return 0 if stream is None else len(stream.ids)


def xrange(keys: Keyspace, args: Arguments) -> Reply:
    first, last, count = _first_id(args[2]), _last_id(args[3]), _count(args)
    stream = keys.get(args[1], Stream)
    return [] if stream is None else stream.between(first, last, count)


def xrevrange(keys: Keyspace, args: Arguments) -> Reply:
    first, last, count = _first_id(args[3]), _last_id(args[2]), _count(args)
    stream = keys.get(args[1], Stream)
    return [] if stream is None else stream.between(first, last, count, newest_first=True)


def xtrim(keys: Keyspace, args: Arguments) -> Reply:
    _, key, strategy, threshold, *options = args
    if options or strategy not in (b"MAXLEN", b"MINID"):
        raise NotSimulatedError(args)
    limit = parse_id(threshold) if strategy == b"MINID" else integer(threshold)
    stream = keys.get(key, Stream)
    if stream is None:
        return 0
    dropped = stream.count_before(limit) if isinstance(limit, tuple) else max(0, len(stream.ids) - limit)
    if dropped:
        stream.drop_oldest(dropped)
        keys.changes.append(args)
    return dropped


class XRead(NamedTuple):
    """What an XREAD asks for: of each stream what comes after an ID."""

    after: list[tuple[bytes, Id]]
    limit: int | None
    block_ms: int | None

    @classmethod
    def parse(cls, args: Arguments) -> XRead:
        options: dict[bytes, int] = {}
        at = 1
        while args[at].upper() != b"STREAMS":
            options[args[at].upper()] = integer(args[at + 1])
            at += 2
        named = args[at + 1 :]
        half, is_unbalanced = divmod(len(named), 2)
        if is_unbalanced:
            raise CommandError(_UNBALANCED)
        after = [(key, parse_id(text)) for key, text in zip(named[:half], named[half:], strict=True)]
        return cls(after, options.get(b"COUNT"), options.get(b"BLOCK"))

    @property
    def streams(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(key for key, _ in self.after))

    def found(self, keys: Keyspace) -> Reply:
        """None: nothing of any stream."""
        found: list[Reply] = []
        for key, stream_id in self.after:
            stream = keys.get(key, Stream)
            if stream is not None and stream.last > stream_id:
                rows = stream.between(_after(stream_id), END, self.limit)
                if rows:
                    found.append([key, rows])
        return found or None


def parse_id(text: bytes, missing: int = 0) -> Id:
    first, dash, second = text.partition(b"-")
    return _part(first), _part(second) if dash else missing


def _part(text: bytes) -> int:
    if not text.isdigit() or (part := int(text)) > PART_MAX:
        raise CommandError(_INVALID_ID)
    return part


def _next_id(last: Id, generation: int | None, now_ms: int) -> Id:
    """Of that generation, or of the time; not above `last` if there is none."""
    if generation is None:
        generation = max(now_ms, last[0])
    return (generation, last[1] + 1) if generation == last[0] else (generation, 0)


def _after(stream_id: Id) -> Id:
    return stream_id[0], stream_id[1] + 1


def _before(stream_id: Id) -> Id:
    generation, sequence = stream_id
    return (generation, sequence - 1) if sequence else (generation - 1, PART_MAX)


def _first_id(text: bytes) -> Id:
    if text.startswith(b"("):
        return _after(parse_id(text[1:]))
    return _ENDS.get(text) or parse_id(text)


def _last_id(text: bytes) -> Id:
    if text.startswith(b"("):
        stream_id = parse_id(text[1:], PART_MAX)
        if stream_id == START:
            raise CommandError("ERR invalid end ID for the interval")
        return _before(stream_id)
    return _ENDS.get(text) or parse_id(text, PART_MAX)


def _count(args: Arguments) -> int | None:
    if len(args) == 4:
        return None
    if len(args) != 6 or args[4].upper() != b"COUNT":
        raise NotSimulatedError(args)
    return integer(args[5])
