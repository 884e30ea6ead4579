"""Random commands that often meet: few keys, few values; both libraries of functions, whatever they are asked."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from flockmq.durable import session_store
from flockmq.membership import leader_lease
from flockmq.redis.connection import Argument
from flockmq.rlog import committer

Command = tuple[Argument, ...]

LOG: Final = tuple(f"flockmq:{{route}}:{name}" for name in ("log", "life", "sequences", "purged", "fence"))
SLOT: Final = ("flockmq:{s3}:fence", "flockmq:{s3}:ids")
LOAD: Final[list[Command]] = [
    ("FUNCTION", "LOAD", "REPLACE", committer.FUNCTIONS),
    ("FUNCTION", "LOAD", "REPLACE", session_store.FUNCTIONS),
]
LONG_MS: Final = 10_000_000


class Generator:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._kinds: list[Callable[[], Command]] = [
            self._string,
            self._collection,
            self._stream,
            self._stream,
            *3 * [self._append],
            *2 * [self._of_log],
            *3 * [self._of_slot],
            self._lease,
            self._spoil,
        ]

    def commands(self, count: int) -> list[Command]:
        return [self._random.choice(self._kinds)() for _ in range(count)]

    def _one(self, *options: str | int) -> str | int:
        return self._random.choice(options)

    def _number(self, first: int, last: int) -> int:
        return self._random.randint(first, last)

    def _text(self) -> str:
        return f"{self._number(0, 5)}" * self._number(0, 40)

    def _string(self) -> Command:
        key = self._one("a", "b", "c")
        return self._random.choice(
            [
                ("GET", key),
                ("SET", key, self._text()),
                ("SET", key, self._number(0, 9), "PX", self._one(0, LONG_MS)),
                ("INCR", key),
                ("PEXPIRE", key, self._one(-1, LONG_MS, "soon")),
                ("DEL", key, self._one("a", "b")),
                ("UNLINK", key, self._one("h", "s", "z", "x")),
                ("PING",),
                ("MEMORY", "USAGE", "nothing"),
                ("HSET", key, "field", "value"),
                ("XLEN", key),
            ]
        )

    def _collection(self) -> Command:
        member = f"m{self._number(0, 9)}"
        return self._random.choice(
            [
                ("HSET", "h", member, self._text(), f"m{self._number(0, 9)}", self._text()),
                ("HSET", "h", member),
                ("HGET", "h", member),
                ("HMGET", "h", member, "none", "m1"),
                ("HDEL", "h", member, "m1"),
                ("HSCAN", "h", 0, "COUNT", 100),
                ("SADD", "s", member, "m2"),
                ("SREM", "s", member, "m2"),
                ("SSCAN", "s", 0, "COUNT", 100),
                ("ZADD", "z", self._one(1, 2, 3, "1.5", "x"), member),
                ("ZSCORE", "z", member),
                ("ZREMRANGEBYRANK", "z", self._number(-12, 12), self._number(-12, 12)),
                ("GET", self._one("h", "s", "z", "x")),
                ("HGET", "s", member),
                ("SADD", "z", member),
                ("ZADD", "h", 1, member),
            ]
        )

    def _id(self) -> str:
        return f"{self._number(0, 4)}-{self._number(0, 5)}"

    def _bound(self) -> Argument:
        return self._one("-", "+", self._id(), self._id(), f"({self._id()}", self._number(0, 4), "x-1")

    def _stream(self) -> Command:
        key = self._one("x", "y", LOG[0])
        return self._random.choice(
            [
                ("XADD", key, f"{self._number(0, 4)}-*", "b", self._text()),
                ("XADD", key, self._one(self._id(), "x"), "b", self._text(), "c", "d"),
                ("XADD", key, self._id(), "b"),
                ("XLEN", key),
                ("XRANGE", key, self._bound(), self._bound()),
                ("XRANGE", key, self._bound(), self._bound(), "COUNT", self._number(1, 4)),
                ("XREVRANGE", key, self._bound(), self._bound(), "COUNT", self._number(1, 4)),
                ("XREVRANGE", key, "+", "-", "COUNT", 1),
                ("XTRIM", key, "MINID", self._id()),
                ("XTRIM", key, "MAXLEN", self._number(0, 20)),
                ("XREAD", "COUNT", self._number(1, 4), "STREAMS", key, "y", self._id(), self._id()),
                ("XREAD", "STREAMS", "x", "y", self._id()),
            ]
        )

    def _life(self) -> str:
        return f"{self._one(1, 1, 1, 2)}:run"

    def _fence(self) -> str:
        return f"{self._number(1, 2)}-{self._number(1, 3)}"

    def _incarnation(self) -> str:
        return f"node-{self._number(0, 3)}@1"

    def _append(self) -> Command:
        verb = self._one("append", "append_full")
        arguments: list[Argument] = []
        for _ in range(self._number(1, 3)):
            count = self._number(1, 3)
            arguments += self._incarnation(), self._number(0, 6), count, *(self._text() for _ in range(count))
        return "FCALL", f"flockmq_{verb}_1", len(LOG), *LOG, self._life(), *arguments

    def _of_log(self) -> Command:
        life, fence, incarnation = self._life(), self._fence(), self._incarnation()
        verb, *arguments = self._random.choice(
            [
                ("register", life, incarnation, "registers"),
                ("register", life, incarnation, "registers"),
                ("purge", life, fence, incarnation, "purges", self._one(0, 100)),
                ("checkpoint", life, fence),
                ("trim", life, fence, self._id()),
                ("seal", self._one("", life), self._life(), self._id()),
                ("seed", self._one("", life), self._life(), self._id(), incarnation, self._number(0, 5)),
                ("nothing",),
            ]
        )
        return "FCALL", f"flockmq_{verb}_1", len(LOG), *LOG, *arguments

    def _of_slot(self) -> Command:
        fence = f"1-{self._number(1, 2)} core-{self._number(0, 1)}@1"
        if self._number(0, 3) == 0:
            return "FCALL", "flockmq_home_take_2", 1, SLOT[0], fence, self._number(0, 3)
        clients = self._random.sample(["ann", "bob", "eve"], self._number(0, 3))
        arguments: list[Argument] = []
        for _ in clients:
            puts, deletes = self._number(0, 2), self._number(0, 2)
            arguments += self._one("K", "B", "E", "R"), 2 * puts, deletes
            arguments += [f"f{self._number(0, 5)}" if at % 2 == 0 else self._text() for at in range(2 * puts)]
            arguments += [f"f{self._number(0, 5)}" for _ in range(deletes)]
        keys = *SLOT, *(f"flockmq:{{s3}}:c:{client}" for client in clients)
        function = self._one("flockmq_home_write_2", "flockmq_home_write_full_2")
        before, after = f"{fence} {self._number(0, 3)}", f"{fence} {self._number(0, 3)}"
        return "FCALL", function, len(keys), *keys, before, after, *arguments

    def _lease(self) -> Command:
        who = f"core-{self._number(0, 1)}@1"
        if self._number(0, 2) == 0:
            return "EVAL", leader_lease._RELEASE, 2, "leader", "leader:fence", who, self._number(0, 5)
        return (
            "EVAL",
            leader_lease._TAKE_OR_RENEW,
            2,
            "leader",
            "leader:fence",
            who,
            LONG_MS,
            "core-1@",
            self._one("", f"{who}|"),
        )

    def _spoil(self) -> Command:
        """Now and then a key holds what it shouldn't, and a function fails amid its writes."""
        if self._number(0, 2):
            return "GET", self._one(LOG[1], LOG[4], SLOT[0], "leader", "leader:fence")
        key = self._one(*LOG[:4], SLOT[1], "flockmq:{s3}:c:ann", "leader:fence")
        return self._random.choice([("SET", key, "spoilt"), ("DEL", key), ("DEL", key)])
