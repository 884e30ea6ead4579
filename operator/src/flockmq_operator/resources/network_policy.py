"""NetworkPolicies: who may connect to which port. Policies add up, so a namespace opens more by one of its own."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import LINK_PORT, MANAGEMENT_PORT, REDIS_PORT, SENTINEL_PORT, Context
from flockmq_operator.resources.labels import Component, metadata, selector


def network_policies(context: Context) -> Iterator[Manifest]:
    if not context.spec.network_policy.enabled:
        return
    links = _ingress([LINK_PORT], [_pods(context, "core"), _pods(context, "replicant")])
    management = _ingress([MANAGEMENT_PORT], [_operator(context), _prometheus()])
    clients = {"ports": _ports([listener.port for listener in context.spec.listeners])}
    yield _policy(context, context.core, "core", [links, management])
    yield _policy(context, context.replicant, "replicant", [clients, links, management])
    yield _policy(context, context.report, "report", [])
    if context.spec.redis.external is None:
        nodes = [_pods(context, "core"), _pods(context, "replicant")]
        users = [*nodes, _pods(context, "report")]
        if context.redis_hosts:
            themselves = _pods(context, "redis")
            sentinels = _ingress([SENTINEL_PORT], [*nodes, themselves])
            yield _policy(context, context.redis, "redis", [_ingress([REDIS_PORT], [*users, themselves]), sentinels])
        else:
            yield _policy(context, context.redis, "redis", [_ingress([REDIS_PORT], users)])


def _policy(context: Context, name: str, component: Component, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(context, name, component),
        "spec": {
            "podSelector": {"matchLabels": selector(context, component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
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


def _prometheus() -> Manifest:
    """Prometheus wherever it runs; this label is what its operator and its charts set."""
    return {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
