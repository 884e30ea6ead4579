"""The settings that are changed while nodes run, as the REST API shows them (see `settings`). The structs are its
JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec


class SettingsShown(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the node that answers."""

    revision: int
    """The newest revision; 0: nothing was ever changed."""
    at: datetime | None
    by: str | None
    """The name of the key that made it."""
    document: dict[str, Any]
    """What it changes, in all nodes' own configurations."""
    settings: dict[str, Any]
    """The values that hold at this node, of all keys that can be changed."""
    unused: Sequence[str]
    """The paths of the document that don't concern this node."""
    fault: str
    """Why this node doesn't apply the newest revision, or a part of it. "": it does."""


class RevisionRow(msgspec.Struct, frozen=True, kw_only=True):
    revision: int
    at: datetime
    by: str
    patch: dict[str, Any]
    """What it changed in the revision before."""
    document: dict[str, Any]


class SettingsView(Protocol):
    def shown(self) -> SettingsShown: ...

    def history(self) -> Sequence[RevisionRow]:
        """The last SETTINGS_REVISIONS_MAX revisions, the newest first."""

    async def change(self, patch: object, by: str, expected: int | None) -> SettingsShown:
        """Apply a merge patch to the document. `expected`: the revision that it was made for; None: any. Raises
        RequestRefused, Invalid, StorageError."""

    async def restore(self, revision: int, by: str, expected: int | None) -> SettingsShown:
        """Make the document of an earlier revision the newest one. Raises RequestRefused, Missing, StorageError."""
