"""Converts one configuration value to the type of its key, and checks it.

The type determines the bounds and the error text. A struct, a list of structs, or a tagged union of structs is one
value; an error names the place inside it (`authentication.chain[1].url`).
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from flockmq import strict_json
from flockmq.config.values import (
    HIDDEN,
    PARSERS,
    Address,
    AnyRedisUrl,
    HttpUrl,
    Kind,
    Network,
    RedisUrl,
    Secret,
    amount,
    read_secret,
    split_password,
)
from flockmq.errors import ConfigError


def read(value: object, kind: object, where: str, *, is_text: bool = False) -> object:
    """Convert `value` to the type `kind`. `is_text`: the source has only texts ("32", "true", "a, b", JSON).

    Raises ConfigError: one line with the key, the value unless it is secret, and what to change.
    """
    if (parse := PARSERS.get(kind)) is not None:
        return _parsed(value, kind, where, parse)
    if is_struct(kind):
        return _document(value, kind, where, is_text)
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in of:
            return None
        some = [member for member in of if member is not NoneType]
        return _tagged(value, some, where, is_text) if len(some) > 1 else read(value, some[0], where, is_text=is_text)
    if origin in (tuple, list):
        items = _items(value, of[0], where, is_text)
        return origin([read(item, of[0], f"{where}[{at}]") for at, item in enumerate(items)])
    if origin is dict:
        table = _table(value, where, is_text)
        return {key: read(item, of[1], f"{where}.{key}") for key, item in table.items()}
    return _plain(value, kind, where, is_text)


def _parsed(value: object, kind: object, where: str, parse: Callable[[object], object]) -> object:
    shown = "" if kind in HIDDEN else f"{value!r} "
    try:
        return parse(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {shown}{error}") from None


def _plain(value: object, kind: object, where: str, is_text: bool) -> object:
    marks = [mark for mark in get_args(kind) if isinstance(mark, Kind)] if get_origin(kind) is Annotated else []
    given = amount(value, marks[0]) if marks else value
    try:
        return msgspec.convert(given, kind, strict=not is_text)
    except (msgspec.ValidationError, ValueError):
        raise ConfigError(f"{where}: {value!r} must be {describe(kind)}") from None


def _items(value: object, of: object, where: str, is_text: bool) -> list[object]:
    plain = of == Network or not (is_struct(of) or get_origin(of) in (Union, UnionType, dict))
    if is_text and isinstance(value, str):
        text = value.strip()
        value = (
            [part.strip() for part in text.split(",") if part.strip()]
            if plain and text[:1] != "["
            else _json(text, where)
        )
    if not isinstance(value, list):
        table = re.sub(r"\[[0-9]+\]", "", where.rpartition(": ")[2])  # TOML table headers have no indexes
        mend = f"; write [[{table}]] above each" if isinstance(value, dict) and not is_text else ""
        form = ", as JSON" if is_text and not plain else mend
        raise ConfigError(f"{where}: must be a list of {describe(of)}{form}")
    return value


def _table(value: object, where: str, is_text: bool) -> dict[str, object]:
    if is_text and isinstance(value, str):
        value = _json(value, where)
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table of keys and values" + (", as JSON" if is_text else ""))
    return value


def _json(text: str, where: str) -> object:
    try:
        return strict_json.decode(text)
    except strict_json.DuplicateKey as error:
        raise ConfigError(f"{where}: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        return None


# --- structs --------------------------------------------------------------------------------------------------------


def is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _tagged(value: object, kinds: list[Any], where: str, is_text: bool) -> object:
    """Convert a table to one of several structs, selected by their msgspec tag."""
    table = _table(value, where, is_text)
    field = kinds[0].__struct_config__.tag_field
    by_tag = {kind.__struct_config__.tag: kind for kind in kinds}
    tag = table.get(field)
    if not isinstance(tag, str) or tag not in by_tag:
        problem = f"{tag!r} must be" if field in table else "is missing; it must be"
        raise ConfigError(f"{where}.{field}: {problem} {' or '.join(map(str, by_tag))}")
    return _document({key: item for key, item in table.items() if key != field}, by_tag[tag], where, False)


def _document(value: object, struct: Any, where: str, is_text: bool) -> object:
    table = _table(value, where, is_text)
    config = struct.__struct_config__
    if config.tag_field in table and table[config.tag_field] == config.tag:
        table = {key: item for key, item in table.items() if key != config.tag_field}
    kinds = field_types(struct)
    for key in table:
        if key not in kinds:
            raise ConfigError(f"{where}.{key}: unknown key; {nearest(key, kinds)}")
        if kinds[key] == Secret | None and f"{key}_file" in table:
            raise ConfigError(f"{where}.{key}: stands beside {key}_file; say one of them")
    return build(struct, {key: read(item, kinds[key], f"{where}.{key}") for key, item in table.items()}, where)


@functools.cache
def field_types(struct: Any) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def build(
    struct: Any, given: Mapping[str, object], where: str, sources: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Make the struct from these fields. Reads its secrets from their files, and runs its own checks. `sources` maps
    keys to the places where the user set them, for error texts; the default is below `where`."""
    values = dict(given)
    kinds = field_types(struct)

    def place(name: str) -> str:
        path = f"{where}.{name}" if where else name
        return sources.get(path, path)

    for name, kind in kinds.items():
        file = values.get(f"{name}_file")
        if kind == Secret | None and values.get(name) is None and isinstance(file, Path):
            values[name] = read_secret(file, place(f"{name}_file"))
    url = values.get("url")
    if kinds.get("password") == Secret | None and isinstance(url, str):
        values["url"], password = split_password(url)
        values["password"] = values.get("password") or password
    for field in msgspec.structs.fields(struct):
        if field.required and field.name not in values:
            raise ConfigError(f"{place(field.name)}: is missing; it must be {describe(kinds[field.name])}")
    try:
        return struct(**values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


# --- error texts ----------------------------------------------------------------------------------------------------


_DESCRIBED: Final[Mapping[object, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    Address: "HOST:PORT",
    Address | None: "HOST:PORT",
    Network: "networks or addresses",
    RedisUrl: "a Redis URL",
    AnyRedisUrl: "a Redis URL",
    HttpUrl: "an HTTP URL",
    Secret: "a text",
}


def describe(kind: object) -> str:
    """Describe a type for an error text: `Literal["a", "b"]` is "a or b"."""
    if kind in _DESCRIBED:
        return _DESCRIBED[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(str, of))
    if origin is Annotated:
        if text := next((mark.description for mark in of[1:] if isinstance(mark, Meta) and mark.description), ""):
            return text
        text = describe(of[0])
        for mark in of[1:]:
            if isinstance(mark, Meta) and mark.ge is not None:
                text += f" from {mark.ge:g} to {mark.le}" if mark.le is not None else f" of at least {mark.ge:g}"
            elif isinstance(mark, Meta) and mark.max_length is not None:
                text += f" of at most {mark.max_length} characters"
            elif isinstance(mark, Kind):
                text += f" ({mark.value})"
        return text
    if origin in (Union, UnionType):
        some = [member for member in of if member is not NoneType]
        return describe(some[0]) if len(some) == 1 else "tables of keys and values"
    return f"a list of {describe(of[0])}" if origin in (list, tuple) else "a table of keys and values"


def nearest(wrong: str, known: Collection[str], shown: Callable[[str], str] = str) -> str:
    """The advice for an unknown name: the most similar known one, as `shown` writes it, or all known ones."""
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"did you mean {shown(near[0])}?" if near else f"known: {', '.join(known)}"
