"""The cluster's key, and sometimes a second one, so that it can be replaced without cutting off a node.

A node proves itself with the first key of the file when it dials. As a listener it accepts any key of the file, and
answers with the one that the dialer used. So a key is replaced in three steps, each after all nodes have read the
previous file: add the new key second; put it first; remove the old one. The file is read again when it changes; links
that are up stay.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from flockmq.bounds import LINK_KEY_MIN_BYTES, LINK_KEYS_MAX
from flockmq.errors import ConfigError

log: Final = logging.getLogger(__name__)


class LinkKeys:
    """`text`: the content of `file`, or the key in the configuration if there is no file."""

    def __init__(self, text: str, file: Path | None = None) -> None:
        """Raises ConfigError."""
        self.all = parse_keys(text)
        self.file = file
        self._text = text

    @property
    def own(self) -> bytes:
        """The key with which this node proves itself."""
        return self.all[0]

    def refresh(self) -> None:
        """Read the file again. If it is invalid, report that once per change and keep the keys."""
        if self.file is None:
            return
        try:
            text = self.file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return  # it is being replaced now
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
    """One key per line. Raises ConfigError."""
    keys = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    if not 1 <= len(keys) <= LINK_KEYS_MAX:
        raise ConfigError(
            f"cluster.key_file: {len(keys)} keys; write one, or {LINK_KEYS_MAX} while it is replaced, one a line"
        )
    if min(map(len, keys)) < LINK_KEY_MIN_BYTES:
        raise ConfigError(f"cluster.key_file: the key must have at least {LINK_KEY_MIN_BYTES} bytes")
    return keys
