"""The MqttRebalance, decoded.

Invariant: what decodes here, the CRD's schema admits, and the reverse: `crds/mqttrebalances.yaml` is the reference for
the meaning, bounds and defaults of each field. Names are the CRD's, in snake case.
"""

from flockmq_operator.custom_object import CustomObject, decode_spec
from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import GROUP, LoadWeights, Part

REBALANCE_KIND = "MqttRebalance"
REBALANCE_PLURAL = "mqttrebalances"
FINALIZER = f"{GROUP}/rebalance"
"""On a MqttRebalance that nodes may be asked for: they are told to stop before it goes."""
UID_LETTERS = 8
"""Of a UID, as Git shortens a digest."""
OVER = frozenset({"Succeeded", "Failed"})
"""The phases in which nothing more is done for it."""


class RebalanceSpec(Part, frozen=True):
    """What is None is as the nodes are configured."""

    cluster: str
    relative_threshold_percent: int | None = None
    absolute_threshold: int | None = None
    weights: LoadWeights = LoadWeights()
    rate: int | None = None
    wait_seconds: int | None = None
    settle_seconds: int | None = None
    dry_run: bool = False

    def planned(self) -> dict[str, float]:
        """The thresholds, the weights and the rate, as the broker names them."""
        percent = self.relative_threshold_percent
        asked = {
            "relative_threshold": None if percent is None else percent / 100,
            "absolute_threshold": self.absolute_threshold,
            "rate": self.rate,
        }
        return {name: value for name, value in asked.items() if value is not None} | self.weights.said()

    def asked(self) -> dict[str, float]:
        """The like, and how long nodes wait. What isn't said isn't asked: older nodes don't know of it."""
        waits = {"wait": self.wait_seconds, "settle": self.settle_seconds}
        return self.planned() | {name: seconds for name, seconds in waits.items() if seconds is not None}


class MqttRebalance(CustomObject, frozen=True):
    """A decoded MqttRebalance object."""

    spec: RebalanceSpec

    @property
    def asks_as(self) -> str:
        """The name by which nodes know it: another one than that of an earlier object of its name."""
        return f"{REBALANCE_KIND}/{self.name}/{self.body['metadata']['uid'][:UID_LETTERS]}"

    @property
    def phase(self) -> str:
        phase: str = self.status.get("phase", "")
        return phase

    @property
    def is_held(self) -> bool:
        return self.has_finalizer(FINALIZER)

    @property
    def needs_work(self) -> bool:
        return self.is_held if self.is_deleted else self.is_held or self.phase not in OVER

    @property
    def precedence(self) -> tuple[bool, str, str]:
        """What runs comes first, then the oldest; of one second by name."""
        return not self.is_held, self.created, self.name


def decode_rebalance(body: Manifest) -> MqttRebalance:
    """Decode a MqttRebalance as the API server returned it; raises SpecError naming the field."""
    return MqttRebalance(body, decode_spec(body, RebalanceSpec))
