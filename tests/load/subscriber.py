"""A client that subscribes and takes what comes: it answers a QoS 2 packet id that isn't released without taking the
message again. It may change its subscriptions all the time, or its node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from conformance import wire
from load.client import acknowledgement
from load.history import Delivered, Message, Subscribed, Unsubscribed
from load.player import Player, Stage

RESUBSCRIBE_S: Final = 0.5
CHURN_S: Final = (0.2, 2.0)
ROVE_S: Final = (2.0, 6.0)


class Subscriber(Player):
    """`churns`: all the time it wants another half of its filters; `roves`: it comes to another node
    while its older connection is still open."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        filters: Sequence[tuple[str, int]],
        *,
        lasts: bool,
        churns: bool = False,
        roves: bool = False,
    ) -> None:
        super().__init__(stage, name, lasts=lasts)
        self.deliveries = 0
        self._filters = dict(filters)
        self._wanted = self._half() if churns else set(self._filters)
        self.churns = churns
        self._roves = roves
        self._held: set[str] = set()
        """Filters that the session has, or may have."""
        self._asked: dict[int, str] = {}
        self._packet_id = 0
        self._unreleased: set[int] = set()

    async def run(self) -> None:
        habits = [habit() for habit, has in ((self._churn, self.churns), (self._rove, self._roves)) if has]
        tasks = [asyncio.ensure_future(habit) for habit in habits]
        try:
            await super().run()
        finally:
            for task in tasks:
                task.cancel()

    @property
    def is_settled(self) -> bool:
        """Connected, and all that is wanted is subscribed."""
        return self.link is not None and not self._asked and self._held == self._wanted

    def settle(self) -> None:
        """Want everything, and change no more."""
        self.churns = self._roves = False
        self._wanted = set(self._filters)
        self._ask()

    def began(self, present: bool) -> None:
        self._held -= set(self._asked.values())  # nobody will tell whether they were done
        self._asked.clear()
        if not present:
            self._held.clear()
            self._unreleased.clear()
        self._ask()

    def received(self, packet: wire.Packet) -> None:
        if packet.kind == wire.PUBLISH:
            self._published(packet)
        elif packet.kind == wire.PUBREL:
            self._unreleased.discard(packet.packet_id)
            self._send(acknowledgement(wire.PUBCOMP, packet.packet_id))
        elif packet.kind in (wire.SUBACK, wire.UNSUBACK):
            self._answered(packet)

    def _published(self, packet: wire.Packet) -> None:
        assert self.link is not None
        if packet.qos < 2 or packet.packet_id not in self._unreleased:
            message = Message.of(packet.payload)
            self.deliveries += 1
            self.stage.record(
                Delivered(
                    self.stage.now(), self.name, self.link.number, message.publisher, message.number,
                    packet.topic.decode(), packet.qos, packet.dup, packet.retain,
                )
            )  # fmt: skip
        if packet.qos == 1:
            self._send(acknowledgement(wire.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self._send(acknowledgement(wire.PUBREC, packet.packet_id))

    def _answered(self, packet: wire.Packet) -> None:
        filter = self._asked.pop(packet.packet_id, None)
        if filter is None or self.link is None:
            return
        if packet.kind == wire.UNSUBACK:
            if packet.reason < 0x80:
                self._held.discard(filter)
        elif packet.reason < 0x80:
            self._held.add(filter)
            qos = self._filters[filter]
            self.stage.record(Subscribed(self.stage.now(), self.name, self.link.number, filter, qos))
        if packet.reason < 0x80:
            self._ask()
        else:
            asyncio.get_running_loop().call_later(RESUBSCRIBE_S, self._ask)

    def _ask(self) -> None:
        """For whatever is wanted and not there, or there and not wanted; one question a filter at a time."""
        if self.link is None:
            return
        under_way = set(self._asked.values())
        for filter, qos in self._filters.items():
            if filter in under_way or (filter in self._wanted) == (filter in self._held):
                continue
            self._packet_id = self._packet_id % 65_535 + 1
            self._asked[self._packet_id] = filter
            if filter in self._wanted:
                self._send(wire.subscribe(wire.V5, self._packet_id, (filter, qos)))
            else:
                self.stage.record(Unsubscribed(self.stage.now(), self.name, filter))
                self._send(wire.unsubscribe(wire.V5, self._packet_id, filter))

    def _half(self) -> set[str]:
        return set(self.stage.random.sample(list(self._filters), (len(self._filters) + 1) // 2))

    async def _churn(self) -> None:
        while True:
            await asyncio.sleep(self.stage.random.uniform(*CHURN_S))
            if not self.churns:
                return
            self._wanted = self._half()
            self._ask()

    async def _rove(self) -> None:
        while True:
            await asyncio.sleep(self.stage.random.uniform(*ROVE_S))
            if not self._roves:
                return
            if self.link is not None and len(self.stage.nodes()) > 1:
                await self.connect(anew=True)

    def _send(self, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(packet)
