"""What a client subscribes to: it asks for what it wants and hasn't, and gives up what it has and doesn't want, one
question a filter at a time, whatever becomes of its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from conformance import wire
from load.history import Overstepped, Subscribed, SubscribeRefused, SubscribeSent, Unsubscribed, UnsubscribeDone

if TYPE_CHECKING:
    from load.player import Player

RESUBSCRIBE_S: Final = 0.5
NO_SUBSCRIPTION: Final = 0x11
"""UNSUBACK's reason."""
PACKET_IDS: Final = range(32_768, 65_536)
"""Those below are for what it publishes."""


class Wish(NamedTuple):
    """A subscription that a client may want. All but filter and QoS are MQTT 5's."""

    filter: str
    qos: int = 2
    no_local: bool = False
    retain_handling: int = 0
    identifier: int = 0
    as_published: bool = False
    """With Retain As Published. Together with `retain_handling` 2: otherwise nobody could tell what is retained from
    what is published meanwhile."""

    @property
    def options(self) -> int:
        return self.qos | self.no_local << 2 | self.as_published << 3 | self.retain_handling << 4


class Subscribing:
    def __init__(self, player: Player, wishes: Iterable[Wish], wanted: Iterable[str] | None) -> None:
        self._player = player
        self._wishes = {wish.filter: wish for wish in wishes}
        self._wanted_at_rest = dict.fromkeys(self._wishes if wanted is None else wanted)
        self._wanted = self._wanted_at_rest
        self._held: dict[str, None] = {}
        self._unsure: dict[str, None] = {}
        """Filters that the session may have, or not: a connection ended before the answer."""
        self._asked: dict[int, str] = {}
        self._questions = 0
        self._named = {wish.identifier: wish.filter for wish in self._wishes.values()}
        """By all identifiers that it ever gave: none is given to two filters."""

    @property
    def is_settled(self) -> bool:
        """All that is wanted is there, and nothing else."""
        return not self._asked and not self._unsure and self._held.keys() == self._wanted.keys()

    @property
    def filters(self) -> list[str]:
        """All that it may want."""
        return list(self._wishes)

    def has(self, filter: str) -> bool:
        return filter in self._held

    def want(self, filters: Iterable[str]) -> None:
        """These, and no others."""
        self._wanted = dict.fromkeys(filters)
        self._ask()

    def settle(self) -> None:
        self.want(self._wanted_at_rest)

    def named(self, identifiers: Iterable[wire.Value]) -> tuple[str, ...]:
        """The filters that were given these identifiers."""
        return tuple(self._named.get(cast(int, identifier), f"?{identifier!r}") for identifier in identifiers)

    def fresh_identifier(self) -> int:
        return max(self._named) + 1

    def forget(self) -> None:
        for known in (self._held, self._unsure, self._asked):
            known.clear()

    def began(self) -> None:
        for filter in self._asked.values():
            self._held.pop(filter, None)
            self._unsure[filter] = None
        self._asked.clear()
        self._ask()

    def received(self, packet: wire.Packet) -> None:
        """SUBACK or UNSUBACK."""
        filter = self._asked.pop(packet.packet_id, None)
        player = self._player
        if filter is None or player.link is None:
            return
        about = player.stage.now(), player.name, player.link.number, filter
        reason = packet.reasons[0] if packet.reasons else 0  # 3.1.1 gives none to UNSUBACK
        if reason >= 0x80:
            if packet.kind == wire.SUBACK:
                player.stage.record(SubscribeRefused(*about, reason))
            asyncio.get_running_loop().call_later(RESUBSCRIBE_S, self._ask)
            return
        self._unsure.pop(filter, None)
        if packet.kind == wire.SUBACK:
            wish = self._wishes[filter]
            self._held[filter] = None
            if reason != wish.qos:
                what = f"a SUBACK of {filter} at QoS {reason}, asked for at {wish.qos}"
                player.stage.record(Overstepped(*about[:3], player.node, what))
            options = wish.retain_handling, wish.as_published, wish.identifier
            player.stage.record(Subscribed(*about, wish.qos, wish.no_local, *options))
        else:
            is_missed = reason == NO_SUBSCRIPTION and filter in self._held
            self._held.pop(filter, None)
            player.stage.record(UnsubscribeDone(*about, is_missed))
        self._ask()

    def _ask(self) -> None:
        if not self._player.is_connected:
            return
        under_way = dict.fromkeys(self._asked.values())
        for filter in self._wishes:
            if filter in under_way:
                continue
            if filter in self._wanted and filter not in self._held:
                self.subscribe(filter)
            elif filter not in self._wanted and (filter in self._held or filter in self._unsure):
                self.unsubscribe(filter)

    def subscribe(self, filter: str) -> None:
        """Also to what it has already."""
        player, wish = self._player, self._wishes[filter]
        assert player.link is not None
        about = player.stage.now(), player.name, player.link.number, filter
        player.stage.record(SubscribeSent(*about, wish.qos, wish.retain_handling, wish.as_published, wish.identifier))
        properties = [(wire.SUBSCRIPTION_ID, wish.identifier)] if wish.identifier else None
        packet_id = self._ask_about(filter)
        player.send(wire.subscribe(player.terms.version, packet_id, (filter, wish.options), properties=properties))

    def ask_otherwise(self, filter: str, **changed: Any) -> None:
        """For what it has, with other fields of `Wish`, unless something of it is under way."""
        if self.has(filter) and filter not in self._asked.values() and self._player.is_connected:
            wish = self._wishes[filter] = self._wishes[filter]._replace(**changed)
            self._named[wish.identifier] = filter
            self.subscribe(filter)

    def unsubscribe(self, filter: str) -> None:
        player = self._player
        player.stage.record(Unsubscribed(player.stage.now(), player.name, filter))
        player.send(wire.unsubscribe(player.terms.version, self._ask_about(filter), filter))

    def _ask_about(self, filter: str) -> int:
        self._questions += 1
        packet_id = PACKET_IDS[self._questions % len(PACKET_IDS)]
        self._asked[packet_id] = filter
        return packet_id
