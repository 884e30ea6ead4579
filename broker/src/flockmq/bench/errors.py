"""What can go wrong while a broker is measured."""

from __future__ import annotations

from flockmq.errors import UserError


class Failed(UserError):
    """The broker, or the way to it, failed the measurement: a figure from such a run would be worse than none."""
