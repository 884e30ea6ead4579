"""Does a live object still hold what a manifest says? Pure.

Server-side apply keeps, in `metadata.managedFields`, the trie of the fields that the operator owns. So drift is exact:

- a field of the manifest has another value, or isn't the operator's any more (somebody changed it, be it only by an
  element more in a list that is owned as a whole);
- the operator owns a field that the manifest no longer has.

Fields of other owners (defaults, annotations of other controllers, elements they add to keyed lists) never count. Nor
does what the API server leaves out though it was applied (`readOnly: false`, `value: ""`): it is the operator's
nevertheless, and what somebody removed isn't.
"""

import json
from collections.abc import Iterator
from decimal import Decimal

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity

FIELD_MANAGER = "flockmq-operator"
IDENTITY = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
"""What names the object; it can't change and nobody owns it."""

Trie = dict[str, "Trie"]
"""FieldsV1: `f:NAME`, `k:{KEYS}` (an element by its keys) or `v:VALUE` → what is owned below; empty: all."""


def drift(desired: Manifest, live: Manifest) -> list[str]:
    """The paths at which `live` isn't what `desired` says; empty when it is."""
    owned = owned_fields(live)
    return [*_lacking(desired, live, owned, ""), *_abandoned(owned, desired, "")]


def owned_fields(live: Manifest) -> Trie:
    for entry in live["metadata"].get("managedFields", ()):
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply" and "subresource" not in entry:
            fields: Trie = entry["fieldsV1"]
            return fields
    return {}


def _lacking(desired: Manifest, live: Manifest, owned: Trie, path: str) -> Iterator[str]:
    """Paths below `path` at which the object lacks what `desired` has, or has it from somebody else."""
    for key, value in desired.items():
        here = f"{path}.{key}".removeprefix(".")
        empty = value in ("", None, [], {})  # the API server may store nothing for these
        below = owned.get(f"f:{key}")
        omitted = key not in live and (empty or (not value and below is not None))
        if here in IDENTITY or omitted:
            continue
        if key not in live or below is None:
            yield here
        elif not below:
            if not _same(value, live[key]):
                yield here
        elif isinstance(value, dict) and isinstance(live[key], dict):
            yield from _lacking(value, live[key], below, here)
        elif isinstance(value, list) and isinstance(live[key], list):
            yield from _lacking_elements(value, live[key], below, here)
        else:
            yield here


def _lacking_elements(desired: list[Manifest], live: list[Manifest], owned: Trie, path: str) -> Iterator[str]:
    """The like in a list whose elements are owned one by one, each known by its keys."""
    for element in desired:
        for step, below in owned.items():
            keys = json.loads(step[2:])
            if step.startswith("k:") and _has_keys(element, keys):
                here = f"{path}[{','.join(map(str, keys.values()))}]"
                counterpart = next((other for other in live if _has_keys(other, keys)), {})
                if below:
                    yield from _lacking(element, counterpart, below, here)
                elif not _same(element, counterpart):
                    yield here
                break
            if step.startswith("v:") and keys == element:
                break
        else:
            yield path


def _abandoned(owned: Trie, desired: object, path: str) -> Iterator[str]:
    """Paths that are owned and that `desired` doesn't have."""
    for step, below in owned.items():
        kind, _, rest = step.partition(":")
        if kind == "f":
            here = f"{path}.{rest}".removeprefix(".")
            if isinstance(desired, dict) and rest in desired:
                yield from _abandoned(below, desired[rest], here)
            else:
                yield here
        elif kind == "k":
            keys = json.loads(rest)
            elements = desired if isinstance(desired, list) else []
            element = next((element for element in elements if _has_keys(element, keys)), None)
            if element is None:
                yield f"{path}[{','.join(map(str, keys.values()))}]"
            else:
                yield from _abandoned(below, element, path)
        elif kind == "v" and not (isinstance(desired, list) and json.loads(rest) in desired):
            yield f"{path}[{rest}]"


def _has_keys(element: object, keys: Manifest) -> bool:
    """Whether an element of a list has these keys; a missing protocol is TCP, as the API server fills it in. Whatever
    else than a map somebody wrote into a podTemplate has none, and the API server says so when it is applied."""
    if not isinstance(element, dict):
        return False
    return all(element.get(key, "TCP" if key == "protocol" else None) == value for key, value in keys.items())


def _same(desired: object, live: object) -> bool:
    """Equal but for defaults within, for what is left out, and for how a quantity is written: the API server turns
    1000m into 1."""
    match desired, live:
        case dict(), dict():
            return all(_same(value, live[key]) if key in live else not value for key, value in desired.items())
        case list(), list():
            return len(desired) == len(live) and all(map(_same, desired, live))
        case _:
            return desired == live or (_number(desired) is not None and _number(desired) == _number(live))


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return quantity(value)
    except ValueError:
        return None
