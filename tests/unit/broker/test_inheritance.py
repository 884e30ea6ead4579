"""How deep classes inherit: two levels, so that one reads where a call goes. The sources are read, not imported."""

from __future__ import annotations

import ast
import builtins
from typing import Final

from flockmq.compiled_modules import PACKAGE, module_name

DEEPEST: Final = 2
CONNECTION: Final = {"Channel": 3, "Conversation": 4, "Connection": 5}
"""Routing, requests, packets and sockets each know more of a client's connection. These parts are one object, because
what they pass on would cost a call for each packet.
"""

Class = tuple[str, str]
"""Its module and its name."""


def bases_of() -> dict[Class, list[Class]]:
    """The bases of each class, but for those that aren't the broker's."""
    found: dict[Class, list[Class]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = module_name(path)
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(base).partition("[")[0] for base in node.bases]
                found[module, node.name] = [imported.get(name, (module, name)) for name in names]
    return found


BASES: Final = bases_of()


def depth(of: Class) -> int:
    return 1 + max((depth(base) for base in BASES[of] if base in BASES), default=0)


def is_exception(of: Class) -> bool:
    known = getattr(builtins, of[1], None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return True
    return any(is_exception(base) for base in BASES.get(of, ()))


def test_classes_inherit_from_one_other_but_for_settings_exceptions_and_a_connection() -> None:
    asked = [of for of in BASES if not of[0].startswith("flockmq.config.") and not is_exception(of)]
    assert {name: deep for of in asked if (deep := depth(of)) > DEEPEST for name in [of[1]]} == CONNECTION
