"""The log without Redis: tables that a write reaches at once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import cast

from flockmq.auth.authenticator import Attempt
from flockmq.protocol.client import ClientCertificate, PeerInfo
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import ALARMS, CLUSTER, Alarm
from flockmq.rlog.table import TableListener
from flockmq.rlog.tables import Tables


class FakeLog:
    def __init__(self) -> None:
        self.tables = Tables()
        self.written: list[Op] = []
        self.version = 2
        self.on_entries: list[Callable[[StreamId], None]] = []

    def on_change(self, table: str, listener: object) -> None:
        self.tables.named(table).listeners.append(cast(TableListener[object, object], listener))

    def on_entry(self, shard: str, callback: Callable[[StreamId], None]) -> None:
        self.on_entries.append(callback)

    async def catch_up(self, shard: str) -> None:
        """A write reaches the tables at once."""

    def raise_alarm(self, name: str, text: str) -> None:
        self.put([ALARMS.put(name, Alarm(0.0, text))])

    def end_alarm(self, name: str) -> asyncio.Future[StreamId]:
        return self.submit(CLUSTER, [ALARMS.delete(name)])

    def clear_alarm(self, name: str) -> None:
        self.end_alarm(name)

    def put(self, ops: Sequence[Op]) -> None:
        for number, kind, owner, key, value in ops:
            self.written.append((number, kind, owner, key, value))
            values = [value] if kind == 0 else []
            (table,) = [shard.tables[number] for shard in self.tables.shards.values() if number in shard.tables]
            table.apply(kind, owner, [key], values)
        for callback in self.on_entries:
            callback(StreamId(1, len(self.written)))

    async def write(self, shard: str, ops: Sequence[Op]) -> StreamId:
        self.put(ops)
        return StreamId(1, len(self.written))

    def submit(self, shard: str, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        self.put(ops)
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        done.set_result(StreamId(1, len(self.written)))
        return done

    def may_write(self) -> bool:
        """What came with version 2."""
        return self.version >= 2

    def as_rlog(self) -> Rlog:
        return cast(Rlog, self)


def attempt(
    client_id: str = "c",
    username: str | None = None,
    password: str | None = None,
    host: str = "192.0.2.1",
    certificate: ClientCertificate | None = None,
) -> Attempt:
    return Attempt(
        client_id.encode(),
        None if username is None else username.encode(),
        None if password is None else password.encode(),
        PeerInfo(host, 1, "tcp:default", certificate=certificate),
    )


def proved(password: str, first: bytes, challenge: bytes) -> bytes:
    """The last SCRAM message of a client with this password."""
    said = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(said["s"]), int(said["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    header, _, bare = first.partition(b",,")
    binding = base64.b64encode(header + b",,")
    without = b"c=" + binding + b",r=" + said["r"].encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), bare + b"," + challenge + b"," + without, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return without + b",p=" + base64.b64encode(proof)
