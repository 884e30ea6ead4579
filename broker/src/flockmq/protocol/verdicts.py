"""What a client may be allowed to do to a topic, and what is said to that."""

from __future__ import annotations

from typing import Final

DENIED: Final = 0
ALLOWED: Final = 1
ASKED: Final = 2
UNTOLD: Final = 3
"""Nobody can say now: it is refused, but not as what the client may not do."""

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
"""What a client may be allowed to do to a topic."""
