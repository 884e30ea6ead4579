"""Who owns which slot, at an exact place of the log.

Callbacks about slots come amid an entry that is being applied, when neither the place in the log nor the other rows are
what they will be. Changes are noted, and looked at when the turn that applied them is over.

What always holds: `owners` is what the log says at `changed_at`, and still is at `epoch()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class SlotTable:
    """Give `noted` to whoever tells of slots; `on_change` is called when `owners` are other ones."""

    def __init__(
        self,
        slots: Mapping[int, str],
        epoch: Callable[[], int],
        soon: Callable[[Callable[[], None]], object],
        on_change: Callable[[], None],
    ) -> None:
        self.owners: dict[int, str] = {}
        self.changed_at = 0
        self._slots = slots
        self._epoch = epoch
        self._soon = soon
        self._on_change = on_change
        self._is_noted = False

    def noted(self, slot: int, owner: str) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._soon(self._look)

    def epoch(self) -> int:
        """The last place in the log of which all changes are in `owners`."""
        return self.changed_at if self._is_noted else self._epoch()

    def _look(self) -> None:
        self._is_noted = False
        self.owners = dict(self._slots)
        self.changed_at = self._epoch()
        self._on_change()
