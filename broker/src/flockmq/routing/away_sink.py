"""What stands in the place of a connection for a session whose client is away: everything waits in the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.routing.sink import AWAY, Sink

if TYPE_CHECKING:
    from flockmq.routing.router import Router


class AwaySink(Sink):
    """One for each protocol version: the version of the last connection is that of the packets that wait."""

    __slots__ = ("router",)

    def __init__(self, router: Router, protocol_version: int) -> None:
        super().__init__(router.turn, protocol_version)
        self.router = router
        self.flow = AWAY

    def now_s(self) -> float:
        return self.router.now_s

    def put(self, chunk: bytes) -> None:
        raise AssertionError("nothing is sent to a client that is away")
