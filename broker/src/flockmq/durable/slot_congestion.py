"""Sessions with too many waiting messages, slot by slot: nodes pause publishers to such a slot.

Invariant: `say` is called when the first session of a slot becomes congested and when the last one recovers, and
regularly between, because nodes forget a report after CROWDED_KEPT_S. A session without progress, or with too little
for too long, pauses nobody until it has drained (`ProxySink.check_progress`).
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.bounds import CROWDED_KEPT_S
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session import DurableSession
from flockmq.routing.sink import CONGESTED
from flockmq.routing.slots import slot_of


class SlotCongestion:
    """One per core. `session_of` returns the session of a sink that is still in use."""

    def __init__(
        self, session_of: Callable[[ProxySink], DurableSession | None], say: Callable[[int, bool], None]
    ) -> None:
        self._session_of = session_of
        self._say = say
        self._slots: dict[int, dict[ProxySink, None]] = {}
        self._said_s = 0.0

    def __len__(self) -> int:
        """Number of sessions whose publishers are paused."""
        return sum(map(len, self._slots.values()))

    def flow_changed(self, sink: ProxySink) -> None:
        if sink.flow == CONGESTED:
            slot = slot_of(sink.client_id)
            congested = self._slots.setdefault(slot, {})
            congested[sink] = None
            if len(congested) == 1:
                self._say(slot, True)
        else:
            self.gone(sink)

    def gone(self, sink: ProxySink) -> None:
        """The sink flows, lags, or is no longer in use."""
        slot = slot_of(sink.client_id)
        congested = self._slots.get(slot)
        if congested is not None and sink in congested:
            del congested[sink]
            if not congested:
                del self._slots[slot]
                self._say(slot, False)

    def tick(self, now_s: float) -> None:
        for sink in [sink for congested in self._slots.values() for sink in congested]:
            session = self._session_of(sink)
            if session is None:
                self.gone(sink)
            else:
                sink.check_progress(session.outgoing.is_held_up())
        if now_s - self._said_s >= CROWDED_KEPT_S / 4:
            self._said_s = now_s
            for slot in self._slots:
                self._say(slot, True)
