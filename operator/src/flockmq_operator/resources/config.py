"""The ConfigMap: one file a component, each whole. A pod carries the digest of its file, so a change rolls it."""

import hashlib
from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity
from flockmq_operator.resources.context import REDIS_DATA_DIR, REDIS_PORT, SECRETS_DIR, Context
from flockmq_operator.resources.labels import Component, metadata
from flockmq_operator.resources.node_config import node_config

MAXMEMORY_PERCENT = 60
"""Of Redis' memory limit; the rest is for the pages that a rewrite of its file copies."""


def config_map(context: Context) -> Iterator[Manifest]:
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(context, context.config),
        "data": files(context),
    }


def files(context: Context) -> dict[str, str]:
    """File name → content."""
    nodes = {f"{role}.toml": node_config(context, role) for role in ("core", "replicant")}
    return nodes if context.spec.redis.external else {**nodes, "valkey.conf": valkey_conf(context)}


def file_of(component: Component) -> str:
    return "valkey.conf" if component == "redis" else f"{component}.toml"


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def valkey_conf(context: Context) -> str:
    limit = quantity(context.spec.redis.resources.limits["memory"])
    directives = (
        f"include {SECRETS_DIR}/auth.conf",
        f"port {REDIS_PORT}",
        "bind * -::*",
        f"dir {REDIS_DATA_DIR}",
        "appendonly yes",
        "appendfsync always",
        'save ""',
        f"maxmemory {int(limit * MAXMEMORY_PERCENT / 100)}",
        "maxmemory-policy noeviction",
    )
    return "\n".join(directives) + "\n"
