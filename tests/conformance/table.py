"""docs/conformance.md, from the tests: `python tests/conformance/table.py --write` makes it anew.

A statement stands there with the tests that hold it, or with the reason why none does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import FunctionType
from typing import Final

FOLDER: Final = Path(__file__).parent
TABLE: Final = FOLDER.parents[1] / "docs" / "conformance.md"
TITLES: Final = {5: "MQTT 5.0", 311: "MQTT 3.1.1"}
TESTS: Final = "../tests/conformance"

sys.path.insert(0, str(FOLDER.parent))

from conformance.statement import KNOWN, MARK, Statement  # noqa: E402

Held = dict[int, dict[str, list[tuple[str, str]]]]


def held() -> Held:
    """By version and statement: (file, test) of those that hold it."""
    found: Held = {version: {} for version in KNOWN}
    for file in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"conformance.{file.stem}")
        for name, test in vars(module).items():
            if not isinstance(test, FunctionType) or not name.startswith("test_"):
                continue
            for version, numbers in getattr(test, MARK, {}).items():
                for number in numbers:
                    found[version].setdefault(number, []).append((file.name, name))
    return found


def complaints(tests: Held) -> list[str]:
    """Statements of a server that are neither tested nor explained, or both."""
    wrong = []
    for version, known in KNOWN.items():
        for number, statement in known.items():
            tested = number in tests[version]
            if statement.why_not is not None and tested:
                wrong.append(f"{TITLES[version]} {number} is tested, and so needs no [why_not]")
            if statement.concerns != "client" and statement.why_not is None and not tested:
                wrong.append(f"{TITLES[version]} {number} ({statement.says}) has neither a test nor a [why_not]")
            if statement.concerns == "client" and (tested or statement.why_not is not None):
                wrong.append(f"{TITLES[version]} {number} binds clients only")
    return wrong


def _row(statement: Statement, tests: list[tuple[str, str]]) -> str:
    if statement.why_not is not None:
        how = f"not tested: {statement.why_not}"
    elif statement.concerns == "client":
        how = "binds clients only"
    else:
        how = "<br>".join(f"[{name.removeprefix('test_')}]({TESTS}/{file})" for file, name in tests)
    return f"| {statement.number} | {statement.says} | {how} |"


def rendered(tests: Held) -> str:
    parts = [
        "# Conformance",
        "",
        "Every normative statement of the OASIS specifications, in our own words, with the tests that hold it,",
        "against a real node over real sockets, interpreted and compiled; made from the tests by",
        "`python tests/conformance/table.py --write`.",
        "",
        "What the specification lets a server refuse is taken, and refused with `mqtt.strict_mode`",
        f"([tests]({TESTS}/test_strict.py), [what it is](listeners.md#strict-mode)).",
        "",
        "|  | statements | tested | not tested | bind clients only |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for version, known in KNOWN.items():
        untested = sum(statement.why_not is not None for statement in known.values())
        clients = sum(statement.concerns == "client" for statement in known.values())
        tested = len(known) - untested - clients
        parts.append(f"| {TITLES[version]} | {len(known)} | {tested} | {untested} | {clients} |")
    for version, known in KNOWN.items():
        parts += ["", f"## {TITLES[version]}", "", "| statement | asks | tests |", "| --- | --- | --- |"]
        parts += [_row(statement, tests[version].get(number, [])) for number, statement in known.items()]
    return "\n".join([*parts, ""])


def main() -> int:
    tests = held()
    wrong = complaints(tests)
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    if "--write" in sys.argv:
        TABLE.write_text(rendered(tests))
    elif TABLE.read_text() != rendered(tests):
        sys.stderr.write(f"{TABLE.name} isn't what the tests say: python tests/conformance/table.py --write\n")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
