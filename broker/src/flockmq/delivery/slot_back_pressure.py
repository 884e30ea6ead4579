"""What slot owners reported recently: which slots are congested, and which accept messages under memory pressure. No
I/O.

An owner repeats its report while it is true. A report expires, so a dead core pauses no publisher.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq import bounds
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.sink import CONGESTED, FLOWING, Sink


class CongestedSlot(Sink):
    """More messages wait for a session of this slot than it reads. The sink flows again when the report expires."""

    def __init__(self, turn: list[Sink], until_s: float) -> None:
        super().__init__(turn, 5)
        self.flow = CONGESTED
        self.until_s = until_s


class MemoryPressureReport:
    """What the owner of a slot reported while Redis is short of memory. `waits`: filters of the sessions for which a
    message would be stored. `members_take`: True if the members of all the slot's shared subscriptions take messages at
    once."""

    def __init__(self, until_s: float, members_take: bool, filters: list[bytes]) -> None:
        self.until_s = until_s
        self.members_take = members_take
        self.waits = FilterIndex()
        for filter in filters:
            self.waits.add(filter, True)


class SlotBackPressure:
    """The reports of all slots. `on_flow` is called for each slot that becomes congested or flows again."""

    def __init__(self, turn: list[Sink], on_flow: Callable[[Sink], None], now_s: Callable[[], float]) -> None:
        self.congested: dict[int, CongestedSlot] = {}
        self._reports: dict[int, MemoryPressureReport] = {}
        self._turn = turn
        self._on_flow = on_flow
        self._now_s = now_s

    def congest(self, slot: int, is_congested: bool) -> None:
        if not is_congested:
            self._end(slot)
            return
        until_s = self._now_s() + bounds.CONGESTED_KEPT_S
        known = self.congested.get(slot)
        if known is not None:
            known.until_s = until_s
        else:
            self.congested[slot] = CongestedSlot(self._turn, until_s)
            self._on_flow(self.congested[slot])

    def look(self) -> None:
        """End congestion whose report has expired."""
        now_s = self._now_s()
        for slot in [slot for slot, known in self.congested.items() if known.until_s <= now_s]:
            self._end(slot)

    def _end(self, slot: int) -> None:
        known = self.congested.pop(slot, None)
        if known is not None:
            known.flow = FLOWING
            self._on_flow(known)

    def report_memory_pressure(self, slot: int, members_take: bool, filters: list[bytes]) -> None:
        """Redis is short of memory: record for which filters a message would have to be stored there."""
        self._reports[slot] = MemoryPressureReport(self._now_s() + bounds.TAKERS_KEPT_S, members_take, filters)

    def redis_is_short(self, is_short: bool) -> None:
        """Called repeatedly. Drops expired reports, and all reports if Redis has memory again."""
        now_s = self._now_s()
        self._reports = {slot: of for slot, of in self._reports.items() if is_short and of.until_s > now_s}

    def may_put(self, slots: list[int], topic: bytes, can_be_refused: bool) -> bool:
        """Whether a message may be sent while Redis is short of memory. Without a report the owner may have no memory
        left."""
        for slot in slots:
            report = self._reports.get(slot)
            if report is None or (can_be_refused and report.waits.match(topic)):
                return False
        return True

    def members_take(self, slot: int) -> bool:
        """Whether a shared delivery may be sent to the slot while Redis is short of memory."""
        report = self._reports.get(slot)
        return report is not None and report.members_take
