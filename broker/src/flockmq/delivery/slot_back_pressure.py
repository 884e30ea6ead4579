"""What owners said of their slots lately: for whom too much waits, and who takes messages while Redis is short. Pure.

An owner says it again and again while it holds. What it said is a lease: it ends when nothing is heard of it for some
time, so a core that died holds up no publisher.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq import bounds
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.sink import CONGESTED, FLOWING, Sink


class CongestedSlot(Sink):
    """More waits for a session of the slot than that takes. It flows when the lease is over."""

    def __init__(self, turn: list[Sink], until_s: float) -> None:
        super().__init__(turn, 5)
        self.flow = CONGESTED
        self.until_s = until_s


class SlotTakers:
    """`waits` has the filters of sessions for which a message would wait; `members_take`: it would for none of a shared
    subscription."""

    def __init__(self, until_s: float, members_take: bool, filters: list[bytes]) -> None:
        self.until_s = until_s
        self.members_take = members_take
        self.waits = FilterIndex()
        for filter in filters:
            self.waits.add(filter, True)


class SlotLeases:
    """Of all slots. `on_flow` hears of each that is congested now, or flows again."""

    def __init__(self, turn: list[Sink], on_flow: Callable[[Sink], None], now_s: Callable[[], float]) -> None:
        self.congested: dict[int, CongestedSlot] = {}
        self._takers: dict[int, SlotTakers] = {}
        self._turn = turn
        self._on_flow = on_flow
        self._now_s = now_s

    def congest(self, slot: int, is_congested: bool) -> None:
        if not is_congested:
            self._end(slot)
            return
        until_s = self._now_s() + bounds.CROWDED_KEPT_S
        known = self.congested.get(slot)
        if known is not None:
            known.until_s = until_s
        else:
            self.congested[slot] = CongestedSlot(self._turn, until_s)
            self._on_flow(self.congested[slot])

    def look(self) -> None:
        """End congestion of which nothing was heard any more."""
        now_s = self._now_s()
        for slot in [slot for slot, known in self.congested.items() if known.until_s <= now_s]:
            self._end(slot)

    def _end(self, slot: int) -> None:
        known = self.congested.pop(slot, None)
        if known is not None:
            known.flow = FLOWING
            self._on_flow(known)

    def take(self, slot: int, members_take: bool, filters: list[bytes]) -> None:
        """Redis is short of memory: whom a message would wait for there."""
        self._takers[slot] = SlotTakers(self._now_s() + bounds.TAKERS_KEPT_S, members_take, filters)

    def redis_is_short(self, is_short: bool) -> None:
        """What is known of takers stays as it is until this is said again."""
        now_s = self._now_s()
        self._takers = {slot: of for slot, of in self._takers.items() if is_short and of.until_s > now_s}

    def may_put(self, slots: list[int], topic: bytes, can_be_refused: bool) -> bool:
        """While Redis is short. An owner that says nothing may have no memory left."""
        for slot in slots:
            takers = self._takers.get(slot)
            if takers is None or (can_be_refused and takers.waits.match(topic)):
                return False
        return True

    def members_take(self, slot: int) -> bool:
        """The same, of a shared delivery."""
        takers = self._takers.get(slot)
        return takers is not None and takers.members_take
