"""NetworkPolicies: who may connect to which port, and where pods may connect to. Policies add up, so a namespace opens
more by one of its own.

Redis and the report connect to nothing but Redis, a backup to Redis and the cores' management. A policy knows addresses
and pods, no names: where nodes may connect to beside the cluster (an external Redis, who authenticates clients), and
the report (S3, the API server, which makes its executors), is only bounded once the spec says it.
"""

from collections.abc import Iterator, Sequence

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import LINK_PORT, MANAGEMENT_PORT, REDIS_PORT, SENTINEL_PORT, Context
from flockmq_operator.resources.labels import Component, metadata, selector
from flockmq_operator.resources.spark import BLOCKS_PORT, DRIVER_PORT

DNS_PORTS = (53, 5353)
"""Of the pods that answer; OpenShift's listen on the second."""
DNS: Manifest = {"ports": [{"protocol": protocol, "port": port} for protocol in ("UDP", "TCP") for port in DNS_PORTS]}


def network_policies(context: Context) -> Iterator[Manifest]:
    if not context.spec.network_policy.enabled:
        return
    links = _ingress([LINK_PORT], [_pods(context, "core"), _pods(context, "replicant")])
    management = _ingress([MANAGEMENT_PORT], [_operator(context), *context.spec.network_policy.management_from])
    clients = {"ports": _ports([listener.port for listener in context.spec.listeners])}
    nodes = _egress_of_nodes(context)
    backups = [_ingress([MANAGEMENT_PORT], [_pods(context, "backup")])] if context.spec.backup else []
    at_cores = [clients] if "core" in (context.clients, context.served_by) else []
    yield _policy(context, context.core, "core", [*at_cores, links, management, *backups], nodes)
    yield _policy(context, context.replicant, "replicant", [clients, links, management], nodes)
    yield from _of_report(context)
    if context.spec.backup:
        tables = {"ports": _ports([MANAGEMENT_PORT]), "to": [_pods(context, "core")]}
        yield _policy(context, context.backup, "backup", [], [DNS, _to_redis(context), tables])
    if context.spec.restore:
        yield _policy(context, context.restore, "restore", [], [])
    if context.spec.redis.external is None:
        yield _policy(context, context.redis, "redis", _ingress_of_redis(context), _egress_of_redis(context))


def _ingress_of_redis(context: Context) -> list[Manifest]:
    ask = [_pods(context, "core"), _pods(context, "replicant"), _pods(context, "report")]
    users = [*ask, *([_pods(context, "backup")] if context.spec.backup else [])]
    if not context.redis_hosts:
        return [_ingress([REDIS_PORT], users)]
    themselves = _pods(context, "redis")
    return [_ingress([REDIS_PORT], [*users, themselves]), _ingress([SENTINEL_PORT], [*ask, themselves])]


def _egress_of_redis(context: Context) -> list[Manifest]:
    return [DNS, _to_redis(context)] if context.redis_hosts else []


def _of_report(context: Context) -> Iterator[Manifest]:
    """Spark's driver and executors connect to one another, both ways; nobody else connects to them."""
    driver, executors = _pods(context, "report"), _pods(context, "executor")
    said = context.spec.network_policy.egress
    leaves = context.spec.redis.external is not None or context.spec.report.storage.s3 is not None
    redis = [] if context.spec.redis.external else [_to_redis(context)]
    blocks = {"ports": _ports([BLOCKS_PORT]), "to": [executors]}
    reached = [DNS, *redis, *([blocks] if context.executors else [])]
    egress = reached if not leaves else None if said is None else [*reached, *said]
    ingress = [_ingress([DRIVER_PORT, BLOCKS_PORT], [executors])] if context.executors else []
    yield _policy(context, context.report, "report", ingress, egress)
    if context.executors:
        to_driver = {"ports": _ports([DRIVER_PORT, BLOCKS_PORT]), "to": [driver]}
        own = None if said is None else [DNS, to_driver, blocks, *said]
        ingress = [_ingress([BLOCKS_PORT], [driver, executors])]
        yield _policy(context, f"{context.report}-executor", "executor", ingress, own)


def _egress_of_nodes(context: Context) -> list[Manifest] | None:
    said = context.spec.network_policy.egress
    if said is None:
        return None
    links = {"ports": _ports([LINK_PORT]), "to": [_pods(context, "core"), _pods(context, "replicant")]}
    redis = [] if context.spec.redis.external else [_to_redis(context)]
    return [DNS, links, *redis, *said]


def _to_redis(context: Context) -> Manifest:
    ports = [REDIS_PORT, SENTINEL_PORT] if context.redis_hosts else [REDIS_PORT]
    return {"ports": _ports(ports), "to": [_pods(context, "redis")]}


def _policy(
    context: Context, name: str, component: Component, ingress: Sequence[Manifest], egress: Sequence[Manifest] | None
) -> Manifest:
    """`egress` None: to anywhere."""
    spec: Manifest = {
        "podSelector": {"matchLabels": selector(context, component)},
        "policyTypes": ["Ingress"],
        "ingress": list(ingress),
    }
    if egress is not None:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": list(egress)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(context, name, component),
        "spec": spec,
    }


def _ingress(ports: list[int], peers: list[Manifest]) -> Manifest:
    return {"ports": _ports(ports), "from": peers}


def _ports(ports: list[int]) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _pods(context: Context, component: Component) -> Manifest:
    return {"podSelector": {"matchLabels": selector(context, component)}}


def _operator(context: Context) -> Manifest:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": context.settings.pod_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "flockmq-operator"}},
    }
