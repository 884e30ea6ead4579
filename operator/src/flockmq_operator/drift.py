"""Does a live object still hold what a manifest says? Pure.

An object has drifted when a field of the manifest has another value in the cluster, or when the operator owns a field
(by `metadata.managedFields`) that the manifest no longer has. Fields of other owners (defaults, annotations of other
controllers, the ReplicaSet controller's) are none of ours and never count.
"""

import json
from collections.abc import Iterator
from decimal import Decimal

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity

FIELD_MANAGER = "flockmq-operator"
LIST_KEYS = ("name", "mountPath", "containerPort", "topologyKey", "type", "key", "ip", "port")
"""The fields, in order of preference, by which an element of a list of objects is told from the others."""


def drift(desired: Manifest, live: Manifest) -> list[str]:
    """The paths at which `live` isn't what `desired` says; empty when it is."""
    return [*_differing(desired, live, ""), *_abandoned(desired, live)]


def _differing(desired: object, live: object, path: str) -> Iterator[str]:
    match desired, live:
        case dict(), dict():
            for key, value in desired.items():
                if key in live:
                    yield from _differing(value, live[key], f"{path}.{key}")
                elif value not in ("", None, [], {}):  # the API server stores nothing for these
                    yield f"{path}.{key}"
        case list(), list():
            if len(desired) > len(live):
                yield path
            for index, item in enumerate(desired):
                found = _counterpart(item, live, index)
                yield from _differing(item, found, f"{path}[{index}]")
        case _:
            if not _equal(desired, live):
                yield path


def _counterpart(item: object, live: list[object], index: int) -> object:
    """The element of `live` that stands for `item`: the one with its key, or the one in its place."""
    if isinstance(item, dict):
        for key in LIST_KEYS:
            if key in item:
                return next((other for other in live if isinstance(other, dict) and other.get(key) == item[key]), None)
    return live[index] if index < len(live) else None


def _equal(desired: object, live: object) -> bool:
    return desired == live or (_number(desired) is not None and _number(desired) == _number(live))


def _number(value: object) -> Decimal | None:
    """The value of a quantity: the API server writes 1000m as 1."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return quantity(value)
    except ValueError:
        return None


def _abandoned(desired: Manifest, live: Manifest) -> Iterator[str]:
    for entry in live["metadata"].get("managedFields", ()):
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply" and "subresource" not in entry:
            yield from _unwanted(entry["fieldsV1"], desired, "")


def _unwanted(owned: Manifest, desired: object, path: str) -> Iterator[str]:
    """Paths in `owned` (a FieldsV1 trie, see structured-merge-diff) that `desired` doesn't have."""
    for step, below in owned.items():
        kind, _, rest = step.partition(":")
        if kind == "f":
            here = f"{path}.{rest}"
            if not isinstance(desired, dict) or rest not in desired:
                yield here
            else:
                yield from _unwanted(below, desired[rest], here)
        elif kind == "k":
            keys = json.loads(rest)
            items = desired if isinstance(desired, list) else []
            item = next((item for item in items if all(_keyed(item, key, value) for key, value in keys.items())), None)
            if item is None:
                yield f"{path}[{rest}]"
            else:
                yield from _unwanted(below, item, f"{path}[{rest}]")
        elif kind == "v" and (not isinstance(desired, list) or json.loads(rest) not in desired):
            yield f"{path}[{rest}]"


def _keyed(item: Manifest, key: str, value: object) -> bool:
    """Whether `item` has this list key; the API server fills a missing protocol in."""
    return bool(item.get(key, "TCP" if key == "protocol" else None) == value)
