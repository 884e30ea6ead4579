"""What conditions are made of, and what they are judged from."""

from typing import NamedTuple

from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context


class Condition(NamedTuple):
    type: str
    status: bool | None
    """None: unknown."""
    reason: str
    message: str


class Situation(NamedTuple):
    """What one pass found and did."""

    generation: int
    context: Context | None = None
    """None: the spec couldn't be decoded."""
    observed: Observed | None = None
    problem: tuple[str, str] | None = None
    """(reason, sentence): why somebody has to act."""
    changed: bool = False
    """Whether the pass changed anything, so that what was observed is already old."""
    waiting_for: str = ""
    update_pending: bool = False
