"""What is beyond its bound is told, and nothing else."""

from __future__ import annotations

import pytest

from faults.watch import BOUNDED, Bounded, bounds_of, bounds_passed, value
from flockmq import bounds
from flockmq.rlog.schema import SHARDS
from flockmq.telemetry.metrics import CATALOGUE, bound_samples
from flockmq.telemetry.sample import Sample
from load.history import BoundPassed

NODES = 5


def bound_of(each: Bounded) -> float:
    return float(getattr(bounds, each.bound.upper()))


def passed(*samples: Sample) -> list[BoundPassed]:
    return list(bounds_passed(1.0, "core-1", samples, bounds_of(bound_samples()), NODES))


@pytest.mark.parametrize("each", BOUNDED)
def test_one_more_than_a_bound_is_found(each: Bounded) -> None:
    assert each.name in {metric.name for metric in CATALOGUE}
    many = (NODES if each.by_node else 1) * (len(SHARDS) if each.by_shard else 1)
    at_most = many * bound_of(each)
    assert not passed(Sample(each.name, at_most, each.labels))
    (found,) = passed(Sample(each.name, at_most + 1, each.labels))
    assert (found.node, found.value, found.bound) == ("core-1", at_most + 1, at_most)
    assert found.name.startswith(each.name)


def test_a_bound_that_is_gone_is_no_silence() -> None:
    with pytest.raises(KeyError):
        list(bounds_passed(1.0, "core-1", [], {}, NODES))


def test_a_metric_is_the_sum_over_its_labels() -> None:
    samples = [Sample("a", 1.0, ("x",)), Sample("b", 2.0), Sample("a", 3.0, ("y",))]
    assert value(samples, "a") == 4.0
    assert value(samples, "c") == 0.0
