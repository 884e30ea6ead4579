"""The cluster's key, and for a while a second one: so it is replaced without a node that stands apart.

The first line of the file is what this node proves itself with when it dials; who dials it may hold any of them, and is
answered by that one. So a key is replaced in three steps, each when all nodes have read the one before: the new one
comes second; it comes first; it is alone. The file is read again when it changes; links that are up stay.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from flockmq.bounds import LINK_KEY_MIN_BYTES, LINK_KEYS_MAX
from flockmq.errors import ConfigError

log: Final = logging.getLogger(__name__)


class LinkKeys:
    """`text`: what `file` holds, or what the configuration says without a file."""

    def __init__(self, text: str, file: Path | None = None) -> None:
        """Raises ConfigError."""
        self.all = parse_keys(text)
        self.file = file
        self._text = text

    @property
    def own(self) -> bytes:
        """What this node proves itself with."""
        return self.all[0]

    def refresh(self) -> None:
        """Read the file again; what can't be used is reported, once for each change, and the keys stay."""
        if self.file is None:
            return
        try:
            text = self.file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return  # it is just being replaced
        if text == self._text:
            return
        self._text = text
        try:
            self.all = parse_keys(text)
        except ConfigError as error:
            log.error("%s; the keys from before stay", error)
        else:
            log.info("cluster.key_file: the cluster's keys were read again")


def parse_keys(text: str) -> tuple[bytes, ...]:
    """One a line. Raises ConfigError."""
    keys = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    if not 1 <= len(keys) <= LINK_KEYS_MAX:
        raise ConfigError(
            f"cluster.key_file: {len(keys)} keys; write one, or {LINK_KEYS_MAX} while it is replaced, one a line"
        )
    if min(map(len, keys)) < LINK_KEY_MIN_BYTES:
        raise ConfigError(f"cluster.key_file: the key must have at least {LINK_KEY_MIN_BYTES} bytes")
    return keys
