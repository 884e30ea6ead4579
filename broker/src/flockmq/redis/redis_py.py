"""redis-py's connections as nodes use them, under uvloop.

A write to a connection that was reset while it was idle raises RuntimeError there, which redis-py passes on. Here it is
a ConnectionError, as under asyncio's own loop. Also, these tell when bytes arrive, because a long reply over a slow
link isn't silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

from redis._parsers import _AsyncHiredisParser
from redis.asyncio.connection import AbstractConnection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import Connection as PlainConnection
from redis.exceptions import ConnectionError

from flockmq.default_callbacks import ignore


class HearingParser(_AsyncHiredisParser):
    """`on_bytes` is called when bytes of a reply have arrived."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self.on_bytes: Callable[[], None] = ignore

    async def read_from_socket(self) -> Literal[True]:
        await super().read_from_socket()  # type: ignore[no-untyped-call]  # redis-py gives it no type
        self.on_bytes()
        return True


class _Resettable(AbstractConnection):
    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if self._writer is not None and self._writer.is_closing():
            await self.disconnect(nowait=True)
            raise ConnectionError("the connection was lost while it was idle")
        await super().send_packed_command(command, check_health)


class TcpConnection(_Resettable, PlainConnection):
    pass


class TlsConnection(_Resettable, SSLConnection):
    pass


class UnixConnection(_Resettable, UnixDomainSocketConnection):
    pass


_RESETTABLE: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    PlainConnection: TcpConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: UnixConnection,
}


def resettable(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """This kind of redis-py's connections, with resets translated."""
    return _RESETTABLE[kind]
