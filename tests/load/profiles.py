"""The loads that a run can have: which features, and what share of the rate each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from load.feature import Feature
from load.features import (
    anew,
    base,
    delayed,
    exclusive,
    expiry,
    forms,
    options,
    overflow,
    overlap,
    owners,
    payloads,
    retained,
    rules,
    shared,
    strategies,
    takeover,
    versions,
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
    "versions": versions.play,
    "forms": forms.play,
    "options": options.play,
    "anew": anew.play,
    "shared": shared.play,
    "strategies": strategies.play,
    "retained": retained.play,
    "wills": wills.play,
    "delayed": delayed.play,
    "exclusive": exclusive.play,
    "expiry": expiry.play,
    "takeover": takeover.play,
    "rules": rules.play,
    "owners": owners.play,
}

_SHARES: Final = {
    "windows": 0.2,
    "payloads": 0.02,
    "overlap": 0.2,
    "versions": 0.1,
    "forms": 0.4,
    "options": 0.4,
    "anew": 0.3,
    "overflow": 0.5,
    "shared": 0.3,
    "strategies": 0.4,
    "retained": 0.15,
    "wills": 0.1,
    "delayed": 0.2,
    "exclusive": 0.1,
    "expiry": 0.1,
    "takeover": 0.15,
    "rules": 0.2,
    "owners": 0.2,
}
"""Of a load's rate; the base has all of it."""
_NOT_STORED: Final = ("overflow", "rules", "expiry", "owners", "versions", "forms", "anew", "options", "strategies")
_FLOW: Final = ("windows", "payloads", "overlap", "versions")
_LITTLE: Final = 0.4
"""Of its share a feature has where all are."""


def _profile(*features: str, part: float = 1.0) -> dict[str, float]:
    return {BASE: 1.0, **{name: _SHARES[name] * part for name in features}}


PROFILES: Final[dict[str, dict[str, float]]] = {
    "base": _profile(),
    "flow": _profile(*_FLOW),
    **{name: _profile(name) for name in FEATURES if name not in _FLOW},
    "real": _profile(*(name for name in FEATURES if name not in ("overflow", "rules")), part=_LITTLE),
    "stored": _profile(*(name for name in FEATURES if name not in _NOT_STORED), part=_LITTLE),
    "away": _profile("wills", "retained", "delayed", "exclusive"),
    "calm": _profile("strategies", "delayed", "overlap"),
    "all": _profile(*FEATURES, part=_LITTLE),
}
"""Of each feature, its share of the load's rate. `overflow` needs nodes with a low `max_mqueue_len` that the stage
knows, `rules` needs an admin, `owners` nodes that bind client ids to users; `stored` needs none of these. `stored`: all
that stands in the log, in Redis and on links, and nothing that a slow machine could take for late, or that nodes of the
release before get wrong."""


def made(feature: Feature, sessions: tuple[str, ...], churners: int) -> Feature:
    if feature.name == BASE:
        base.play(feature, sessions, churners)
    else:
        FEATURES[feature.name](feature)
    return feature
