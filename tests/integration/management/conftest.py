from __future__ import annotations

from integration.auth.conftest import fleet, flockmq

__all__ = ["fleet", "flockmq"]
