from __future__ import annotations

from integration.auth.conftest import fleet

__all__ = ["fleet"]
