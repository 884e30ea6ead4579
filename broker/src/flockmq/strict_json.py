"""JSON that somebody wrote, without keys that are there twice: the last would win, silently."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar, overload

import msgspec

KEY_SHOWN_CHARS: Final = 128
T = TypeVar("T")


class DuplicateKey(msgspec.DecodeError):
    """The text names the key."""


@overload
def decode(text: bytes | str) -> Any: ...
@overload
def decode(text: bytes | str, type: type[T]) -> T: ...
def decode(text: bytes | str, type: Any = Any) -> Any:
    """As `msgspec.json.decode`, in a few times its time. Raises msgspec.DecodeError, also for a key that an
    object has twice (DuplicateKey), UnicodeDecodeError, RecursionError."""
    value = msgspec.json.decode(text, type=type)
    # What numbers are doesn't matter here: Python makes no integer of thousands of digits.
    json.loads(text, object_pairs_hook=_check_keys, parse_int=str, parse_float=str)
    return value


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    """Nothing is kept of an object, so a large text takes no memory."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise DuplicateKey(f"the key {key[:KEY_SHOWN_CHARS]!r} is there twice in one object; say it once")
        seen.add(key)
