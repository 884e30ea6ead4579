"""Errors of measurements."""

from __future__ import annotations

from flockmq.errors import UserError


class Failed(UserError):
    """The broker, or the connection to it, failed during the measurement, so there is no result."""
