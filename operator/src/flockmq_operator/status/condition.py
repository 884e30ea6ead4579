"""What conditions are made of, and what they are judged from."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import Observed
from flockmq_operator.problems import Problem
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component


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
    problems: tuple[Problem, ...] = ()
    """Why somebody has to act."""
    changed: bool = False
    """Whether the pass changed anything, so that what was observed is already old."""
    resized: bool = False
    """Whether sizes are all that it changed."""
    rolls: frozenset[Component] = frozenset()
    """Whose pod template it changed."""
    paused: str = ""
    """That nothing is done, and what waits."""
    behind: bool = False
    """Whether anything waits for the pause to end."""
    waiting_for: str = ""
    update_pending: bool = False
    updated_first: str = ""
    """The MqttClusters whose pods are updated before its own."""
    settings: Mapping[str, object] = {}
    """What is remembered of settings that nodes were told while they run (`hot.edit.Recorded`)."""
    reported: Mapping[str, Any] = {}
    """The last report's headline (`status.report`)."""
    before: Mapping[str, Manifest] = {}
    """The conditions that were reported last, by type."""
    counted: Mapping[str, int] = {}
    """How many replicants there were then (`status.replicants`)."""
    now: datetime = datetime.min.replace(tzinfo=UTC)

    @property
    def problem(self) -> tuple[str, str] | None:
        """The first one's reason, and what is wrong in all."""
        if not self.problems:
            return None
        return self.problems[0].reason, "; ".join(problem.message for problem in self.problems)
