"""Texts with placeholders, such as `mqtt_user:${username}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z0-9_.-]*)\}")


class Template:
    """The constructor raises ValueError for a placeholder that isn't in `known`."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        parts = _PLACEHOLDER.split(text)
        self._texts = parts[0::2]
        self.names = parts[1::2]
        for name in self.names:
            if name not in known:
                raise ValueError(f"${{{name}}} is unknown; known: {', '.join(f'${{{one}}}' for one in known)}")

    def render(self, value: Callable[[str], str | None], quote: Callable[[str], str] = str) -> str:
        """Replace each placeholder by its quoted value. A missing value becomes an empty text."""
        rendered = [self._texts[0]]
        for name, text in zip(self.names, self._texts[1:], strict=True):
            rendered.append(quote(value(name) or ""))
            rendered.append(text)
        return "".join(rendered)
