"""What the operator tells Prometheus at `/metrics` of its health port: its passes, its MqttClusters' conditions,
and how many of its MqttUsers are as they should be.

Plain numbers, written as text when somebody asks. One that stands by for the Lease tells that it does, and zeros.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Literal, NamedTuple, get_args

from flockmq_operator.manifest import Manifest
from flockmq_operator.status import hibernated

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Result = Literal["changed", "unchanged", "failed"]
SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the histogram's buckets; one without a bound is above them."""

LEADING = "flockmq_operator_leading"
CLUSTERS = "flockmq_operator_clusters"
USERS = "flockmq_operator_users"
PASSES = "flockmq_operator_passes_total"
TOOK = "flockmq_operator_pass_seconds"
WAITING = "flockmq_operator_passes_waiting"
CONDITION = "flockmq_operator_condition"
MISSED = "flockmq_operator_missed_backups"
FAMILIES = {
    LEADING: ("gauge", "1 while this operator acts, for it holds the Lease."),
    CLUSTERS: ("gauge", "MqttClusters that it keeps."),
    USERS: ("gauge", "MqttUsers of a MqttCluster, by the reason of their condition Ready: Applied, or what is wrong."),
    PASSES: (
        "counter",
        "Passes over a MqttCluster, its MqttUsers, MqttRebalances or donors: changed, unchanged or failed.",
    ),
    TOOK: ("histogram", "How long passes took, without their wait."),
    WAITING: ("gauge", "Passes that wait, for no more than a few are made at a time."),
    CONDITION: (
        "gauge",
        "1 where a condition of a MqttCluster is True, 0 where it is False; none where that is unknown, and none of "
        "Available where it hibernates.",
    ),
    MISSED: ("gauge", "Backups of a MqttCluster that were due and failed since the last one that succeeded."),
}


class Sample(NamedTuple):
    family: str
    value: float
    suffix: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Values of labels are names of Kubernetes and ours: there is nothing to escape in them."""
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.family}{self.suffix}{f'{{{labels}}}' if labels else ''} {self.value}\n"


class Metrics:
    def __init__(self) -> None:
        self.leading = False
        self.waiting = 0
        self.conditions: dict[tuple[str, str], list[Manifest]] = {}
        """Of each MqttCluster (namespace, name) that is kept, as they were last reported."""
        self.users: dict[tuple[str, str], Counter[str]] = {}
        """Of each MqttCluster (namespace, name): how many of its MqttUsers have which reason."""
        self.missed_backups: dict[tuple[str, str], int] = {}
        """Of each that has backups."""
        self._passes: dict[str, int] = dict.fromkeys(get_args(Result), 0)
        self._buckets = [0] * (len(SECONDS) + 1)
        self._seconds = 0.0

    def passed(self, result: Result, seconds: float) -> None:
        self._passes[result] += 1
        self._buckets[bisect_left(SECONDS, seconds)] += 1
        self._seconds += seconds

    def text(self) -> str:
        lines: list[str] = []
        for family, samples in groupby(self._samples(), lambda sample: sample.family):
            kind, meaning = FAMILIES[family]
            lines += (f"# HELP {family} {meaning}\n", f"# TYPE {family} {kind}\n", *map(str, samples))
        return "".join(lines)

    def _samples(self) -> Iterator[Sample]:
        yield Sample(LEADING, int(self.leading))
        yield Sample(CLUSTERS, len(self.conditions))
        for (namespace, name), reasons in self.users.items():
            for reason, count in reasons.items():
                labels = ("cluster_namespace", namespace), ("cluster", name), ("reason", reason)
                yield Sample(USERS, count, labels=labels)
        for result, count in self._passes.items():
            yield Sample(PASSES, count, labels=(("result", result),))
        counts = list(accumulate(self._buckets))
        for bound, count in zip((*SECONDS, "+Inf"), counts, strict=True):
            yield Sample(TOOK, count, "_bucket", (("le", str(bound)),))
        yield Sample(TOOK, self._seconds, "_sum")
        yield Sample(TOOK, counts[-1], "_count")
        yield Sample(WAITING, self.waiting)
        for (namespace, name), conditions in self.conditions.items():
            for condition in conditions:
                if condition["status"] != "Unknown" and not is_asleep(condition):
                    labels = ("cluster_namespace", namespace), ("cluster", name), ("type", condition["type"])
                    yield Sample(CONDITION, int(condition["status"] == "True"), labels=labels)
        for (namespace, name), missed in self.missed_backups.items():
            yield Sample(MISSED, missed, labels=(("cluster_namespace", namespace), ("cluster", name)))


def is_asleep(condition: Manifest) -> bool:
    """Whether it is False because the spec asks for that: nobody is to be called."""
    return condition["status"] == "False" and condition.get("reason") == hibernated.REASON
