"""The key with which nodes authenticate to one another: how it is replaced. Pure, but for the entropy of a fresh key.

Its Secret holds, beside the file `key` that nodes read again when it changes, what stands of a rotation:

    key         one key; two lines while it is replaced: nodes show the first, and take both
    rotation    what the spec asked for last; the step that was made, and when

Three steps, OVERLAP apart, so that every node has read one before the next: the new key is taken; it is shown; it is
alone.
"""

import secrets as entropy
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from flockmq_operator.certificates import Step, Unreadable

KEY_BYTES = 32
OVERLAP = timedelta(hours=1)
"""How long every node has to read the file again; the kubelet takes a minute or two to bring it."""


class Rotation(msgspec.Struct, frozen=True):
    asked: str = ""
    step: Literal["", "taken", "shown"] = ""
    since: datetime | None = None


def fresh_key(asked: str) -> dict[str, str]:
    return {"key": entropy.token_hex(KEY_BYTES), "rotation": msgspec.json.encode(Rotation(asked)).decode()}


def next_key_step(files: Mapping[str, bytes] | None, asked: str, now: datetime) -> Step | None:
    """What the Secret should become; None: it is as it should be, or isn't there. Raises Unreadable."""
    if files is None:
        return None
    keys, rotation = read(files)
    over = rotation.since is None or now >= rotation.since + OVERLAP
    match rotation.step:
        case "" if asked not in ("", rotation.asked):
            fresh = entropy.token_hex(KEY_BYTES)
            return made([keys[0], fresh], Rotation(asked, "taken", now), "Nodes take a second key for their links")
        case "taken" if over:
            shown = Rotation(rotation.asked, "shown", now)
            return made(keys[::-1], shown, "Nodes show the new key to one another")
        case "shown" if over:
            return made(keys[:1], Rotation(rotation.asked), "The former key of the cluster's links is taken no longer")
        case _:
            return None


def made(keys: list[str], rotation: Rotation, sentence: str) -> Step:
    return Step({"key": "\n".join(keys).encode(), "rotation": msgspec.json.encode(rotation)}, sentence)


def read(files: Mapping[str, bytes]) -> tuple[list[str], Rotation]:
    """Raises Unreadable."""
    keys = files.get("key", b"").decode(errors="replace").split()
    try:
        rotation = msgspec.json.decode(files.get("rotation") or b"{}", type=Rotation)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"rotation isn't as the operator wrote it: {error}") from None
    if len(keys) != (2 if rotation.step else 1):
        raise Unreadable(f"key holds {len(keys)} keys, which isn't what rotation says")
    return keys, rotation
