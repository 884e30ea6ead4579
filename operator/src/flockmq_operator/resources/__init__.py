"""What a MqttCluster is made of, in the order in which it is applied: each builder is a pure function from a Context
to manifests. Builders know nothing of what exists; `plan` compares."""

from collections.abc import Callable, Iterable

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources import (
    accounts,
    autoscaler,
    backup,
    budgets,
    config,
    core,
    network_policy,
    redis,
    replicant,
    report,
    restore,
    secrets,
    service,
)
from flockmq_operator.resources.context import Context

Builder = Callable[[Context], Iterable[Manifest]]

BUILDERS: tuple[Builder, ...] = (
    accounts.service_accounts,
    secrets.secrets,
    config.config_maps,
    network_policy.network_policies,
    budgets.budgets,
    restore.restore,
    redis.redis,
    core.cores,
    replicant.replicants,
    service.service,
    autoscaler.autoscaler,
    report.report,
    backup.backup,
)


def build(context: Context) -> list[Manifest]:
    """Every object of a MqttCluster, as it should be."""
    return [manifest for builder in BUILDERS for manifest in builder(context)]
