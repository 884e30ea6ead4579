"""The loads that a run can have: which features, and what share of the rate each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from load.feature import Feature
from load.features import (
    base,
    delayed,
    exclusive,
    expiry,
    overflow,
    overlap,
    payloads,
    retained,
    rules,
    shared,
    takeover,
    wills,
    windows,
)

BASE: Final = "base"
"""A feature of every profile, with options of its own."""

FEATURES: Final[dict[str, Callable[[Feature], None]]] = {
    "windows": windows.play,
    "overflow": overflow.play,
    "payloads": payloads.play,
    "overlap": overlap.play,
    "shared": shared.play,
    "retained": retained.play,
    "wills": wills.play,
    "delayed": delayed.play,
    "exclusive": exclusive.play,
    "expiry": expiry.play,
    "takeover": takeover.play,
    "rules": rules.play,
}

PROFILES: Final[dict[str, dict[str, float]]] = {
    "base": {BASE: 1.0},
    "flow": {BASE: 1.0, "windows": 0.2, "overflow": 0.5, "payloads": 0.02, "overlap": 0.2},
    "shared": {BASE: 1.0, "shared": 0.3},
    "retained": {BASE: 1.0, "retained": 0.15},
    "wills": {BASE: 1.0, "wills": 0.1},
    "delayed": {BASE: 1.0, "delayed": 0.2},
    "exclusive": {BASE: 1.0, "exclusive": 0.1},
    "expiry": {BASE: 1.0, "expiry": 0.1},
    "takeover": {BASE: 1.0, "takeover": 0.15},
    "rules": {BASE: 1.0, "rules": 0.2},
}


def made(feature: Feature, sessions: tuple[str, ...], churners: int) -> Feature:
    if feature.name == BASE:
        base.play(feature, sessions, churners)
    else:
        FEATURES[feature.name](feature)
    return feature
