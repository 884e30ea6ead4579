"""What this machine can't do to hosts: faults of these kinds are left out of a campaign, which says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from faults import network, sandbox, shim

NEEDS_SHIM: Final = ("clock", "drift", "stall", "fsync")
NEEDS_COMPILER: Final = f"there is no C compiler ({shim.COMPILER}) for shim.c"
NEEDS_RULE: Final = {
    "slow": (network.QUEUED, "the kernel's iptables has no NFQUEUE"),
    "lossy": (network.by_chance(1.0), "the kernel's iptables has no match `statistic`"),
}


def missing() -> dict[str, str]:
    """The first words of kinds that can't be, and why. Inside the sandbox."""
    missing = {} if shim.can_be_built() else dict.fromkeys(NEEDS_SHIM, NEEDS_COMPILER)
    return missing | {verb: reason for verb, (rule, reason) in NEEDS_RULE.items() if not _takes(rule)}


def _takes(rule: Iterable[str]) -> bool:
    return sandbox.succeeds("iptables", "-w", "-A", "OUTPUT", "-d", "0.0.0.0", *rule) and sandbox.succeeds(
        "iptables", "-w", "-D", "OUTPUT", "-d", "0.0.0.0", *rule
    )
