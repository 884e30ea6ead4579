"""PodDisruptionBudgets: a drain takes one pod of a kind at a time; broken pods don't block it."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component, metadata, selector


def budgets(context: Context) -> Iterator[Manifest]:
    components: list[tuple[str, Component]] = [(context.core, "core"), (context.replicant, "replicant")]
    if context.redis_hosts:
        components.append((context.redis, "redis"))
    for name, component in components:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(context, name, component),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": selector(context, component)},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }
