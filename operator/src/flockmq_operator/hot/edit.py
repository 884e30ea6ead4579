"""What of `spec.config` nodes are to be told, so that their pods may keep the files that they have. Pure.

    the files that the spec asks for ─┐
    the files that pods have now ─────┴─▶ which differ in hot keys alone? these stay, the log's document has the rest

Invariants: a file stays only if nothing else differs, and if it has no hot key that the spec doesn't say any more: what
holds without it only the broker knows. What the operator once put into the document follows the spec, and is taken out
again when the spec doesn't say it any more; other changes in the document are an admin's, and stay.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Set
from typing import NamedTuple

from flockmq_operator.hot.keys import other_hot_keys
from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import Observed
from flockmq_operator.redis_tls import as_made
from flockmq_operator.resources.config import files_of
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.resources.node_config import Role, hot_config, node_config
from flockmq_operator.templates import last_made
from flockmq_operator.workloads import settings_of, workload

PATHS_MAX, PATH_MAX = 1024, 256
"""The CRD's bounds of `status.settings.paths`: how many, and the characters of one. Where there are more, pods roll."""


class Recorded(NamedTuple):
    """What the MqttCluster's status remembers (`status.settings`)."""

    paths: frozenset[str] = frozenset()
    """What the operator put into the document."""
    digest: str = ""
    """Of what it put there; empty: it isn't known whether it is there."""

    def as_status(self) -> Manifest:
        return {"paths": sorted(self.paths), "digest": self.digest} if self.paths else {}


def recorded(status: Manifest) -> Recorded:
    said = status.get("settings") or {}
    return Recorded(frozenset(said.get("paths", ())), said.get("digest", ""))


class Edit(NamedTuple):
    values: dict[str, object]
    """Path → value: what the document must say."""
    needed: frozenset[str]
    """Of these, what a file that stays says otherwise."""
    gone: frozenset[str]
    """What the operator put there, and the spec says no more."""
    kept: dict[str, str]
    """The files that stay, by name."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.values, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def is_recorded(self, before: Recorded) -> bool:
        return before == self.record() and not self.gone

    def record(self, *, is_sure: bool = True) -> Recorded:
        """`is_sure`: the document has it. If it isn't, what was to be taken out may still be there."""
        paths = frozenset(self.values)
        if not paths and is_sure:
            return Recorded()
        return Recorded(paths, self.digest) if is_sure else Recorded(paths | self.gone)

    def patch(self) -> Manifest:
        """The merge patch of the document."""
        patch: Manifest = {}
        for path, value in (*self.values.items(), *((path, None) for path in self.gone)):
            *sections, key = path.split(".")
            below = patch
            for section in sections:
                below = below.setdefault(section, {})
            below[key] = value
        return patch


def find_edit(said: Context, observed: Observed) -> Edit:
    """Raises SpecError."""
    context, before = as_made(said, observed), recorded(observed.status)
    free = hot_config(context.spec.config)
    needed, kept = set[str](), dict[str, str]()
    roles: tuple[Role, ...] = ("core", "replicant")
    for role in roles:
        wanted = tomllib.loads(node_config(context, role))
        for name, text in in_use(context, observed, role):
            if other := other_hot_keys(tomllib.loads(text), wanted, frozenset(free)):
                needed |= other
                kept[name] = text
    if not can_be_recorded(needed | before.paths):
        needed, kept = set(), {}
    values = {path: free[path] for path in sorted(needed | before.paths & free.keys())}
    return Edit(values, frozenset(needed), before.paths - free.keys(), kept)


def can_be_recorded(paths: Set[str]) -> bool:
    """Whether the status has room for them. What can't be remembered would stay in the document for good."""
    return len(paths) <= PATHS_MAX and all(len(path) <= PATH_MAX for path in paths)


def in_use(context: Context, observed: Observed, component: Component) -> Iterator[tuple[str, str]]:
    """Name and content of the files in the ConfigMap that the component's pod template names."""
    live = observed.objects.get(workload(context, component))
    made = last_made(live) if live else None
    for name in settings_of(made.template) if made else ():
        yield from files_of(component, observed.objects.get(name, {}).get("data") or {}).items()
