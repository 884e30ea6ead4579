"""Who owns which slot, at an exact place of the log.

Callbacks about slots come amid an entry that is being applied, when neither the place in the log nor the other rows are
what they will be. Changes are noted, and looked at when the turn that applied them is over.

What always holds: `owners` is what the log says at `changed_at`, and still is at `epoch()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class SlotView:
    """Give `noted` to whoever tells of slots. `on_change` gets the view and {slot: (former owner, owner)}, "" for none;
    the same twice where another was the owner in between.
    """

    def __init__(
        self,
        slots: Mapping[int, str],
        epoch: Callable[[], int],
        soon: Callable[[Callable[[], None]], object],
        on_change: Callable[[SlotView, dict[int, tuple[str, str]]], None],
    ) -> None:
        self.owners: dict[int, str] = {}
        self.changed_at = 0
        self._slots = slots
        self._epoch = epoch
        self._soon = soon
        self._on_change = on_change
        self._noted: set[int] = set()

    def noted(self, slot: int, owner: str) -> None:
        if not self._noted:
            self._soon(self._look)
        self._noted.add(slot)

    def epoch(self) -> int:
        """The last place in the log for which all changes of slots were dealt with."""
        return self.changed_at if self._noted else self._epoch()

    def _look(self) -> None:
        noted, self._noted = self._noted, set()
        before, self.owners = self.owners, dict(self._slots)
        self.changed_at = self._epoch()
        self._on_change(self, {slot: (before.get(slot, ""), self.owners.get(slot, "")) for slot in sorted(noted)})
