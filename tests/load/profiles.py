"""The loads that a run can have: which features, and what share of the rate each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from load.feature import Feature
from load.features import base

BASE: Final = "base"
"""A feature of every profile, with options of its own."""

FEATURES: Final[dict[str, Callable[[Feature], None]]] = {}

PROFILES: Final[dict[str, dict[str, float]]] = {
    "base": {BASE: 1.0},
}


def made(feature: Feature, sessions: tuple[str, ...], churners: int) -> Feature:
    if feature.name == BASE:
        base.play(feature, sessions, churners)
    else:
        FEATURES[feature.name](feature)
    return feature
