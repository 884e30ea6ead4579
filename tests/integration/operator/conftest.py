"""Pods of a Redis with replicas, and of one without; nodes that have users."""

import pathlib
from collections.abc import Iterator

import pytest

from integration.auth.conftest import fleet
from integration.operator.pods import Cluster

__all__ = ["cluster", "fleet", "running"]


@pytest.fixture
def cluster(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, getattr(request, "param", 1500))
    try:
        yield made
    finally:
        for pod in made.pods:
            pod.kill()


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    for pod in cluster.pods:
        pod.start()
    assert cluster.wait(cluster.settled, "settled") is cluster.pods[0]
    return cluster
