"""Bugs put into nodes on purpose: a judge that doesn't find one of them proves nothing. For each judge there is one.

They stand in seeded/, by what they are about; `python -m simulation.hunt` plays seeds until each is found.
"""

from __future__ import annotations

from typing import Final

from simulation.seeded import bug, cluster, features, messages, sessions, slots

BUGS: Final = bug.BUGS
PARTS: Final = (messages, sessions, slots, features, cluster)


def install(name: str) -> None:
    """Before nodes start. Raises KeyError for an unknown one."""
    BUGS[name].install()
