"""Normative statements: what they ask (statements5.toml, statements311.toml), and which tests hold them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

FOLDER: Final = Path(__file__).parent
FILES: Final = {5: FOLDER / "statements5.toml", 311: FOLDER / "statements311.toml"}
MARK: Final = "statements"


@dataclass(frozen=True)
class Statement:
    number: str
    concerns: str
    says: str
    why_not: str | None


def load(version: int) -> dict[str, Statement]:
    """The statements of MQTT 5.0 (5) or 3.1.1 (311) by number, in the specification's order."""
    data = tomllib.loads(FILES[version].read_text())
    why_not = data.get("why_not", {})
    unknown = set(why_not) - set(data["statements"])
    assert not unknown, f"[why_not] of {FILES[version].name} names {unknown}, which are no statements"
    return {
        number: Statement(number, concerns, says, why_not.get(number))
        for number, (concerns, says) in data["statements"].items()
    }


KNOWN: Final = {version: load(version) for version in FILES}


def statement(*numbers: str, version: int) -> Callable[[Test], Test]:
    """The decorated test holds these statements of MQTT 5.0 (`version=5`) or 3.1.1 (`version=311`).

    A test that takes `version` runs once for each version it is decorated with, as the protocol level (5 or 4).
    """
    unknown = [number for number in numbers if number not in KNOWN[version]]
    assert not unknown, f"MQTT {version} has no statement {unknown}"

    def mark(test: Test) -> Test:
        held: dict[int, list[str]] = getattr(test, MARK, {})
        held[version] = [*numbers, *held.get(version, [])]
        setattr(test, MARK, held)
        return test

    return mark
