"""The randomness of a node. Code that needs it gets an `Entropy` as an argument, so tests can pass one with a seed.

`random` spreads actions over time and over nodes. `token_bytes` makes unique bytes that nobody can guess. Salts of
passwords and of SCRAM don't come from here.
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
