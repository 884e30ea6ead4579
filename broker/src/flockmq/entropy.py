"""Chance, for all that a node runs. Who needs it is handed an `Entropy`, so a test can hand in one that a seed gives.

`random` spreads what nodes do over time and over one another. `token_bytes` makes bytes that nobody may guess, or make
twice. Salts of passwords and of SCRAM don't come from here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Final, NamedTuple


class Entropy(NamedTuple):
    random: Random
    token_bytes: Callable[[int], bytes]


SYSTEM: Final = Entropy(SystemRandom(), secrets.token_bytes)
