"""The ConfigMap: one file a component, each whole. A pod carries the digest of its file, so a change rolls it."""

import hashlib
import json
from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity
from flockmq_operator.resources.context import (
    DATA_DIR,
    LINK_PORT,
    MANAGEMENT_PORT,
    MQTT_PORT,
    REDIS_DATA_DIR,
    REDIS_PORT,
    SECRETS_DIR,
    Context,
)
from flockmq_operator.resources.labels import Component, metadata

MAXMEMORY_PERCENT = 60
"""Of Redis' memory limit; the rest is for the pages that a rewrite of its file copies."""
REDIS_WAIT_S = 60
"""How long a starting node waits for Redis before it ends and is started again."""

Toml = dict[str, dict[str, str | int | bool | list[str]]]


def config_map(context: Context) -> Iterator[Manifest]:
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(context, context.config),
        "data": files(context),
    }


def files(context: Context) -> dict[str, str]:
    """File name → content."""
    nodes = {f"{role}.toml": toml(node_config(context, role)) for role in ("core", "replicant")}
    return nodes if context.spec.redis.external else {**nodes, "valkey.conf": valkey_conf(context)}


def file_of(component: Component) -> str:
    return "valkey.conf" if component == "redis" else f"{component}.toml"


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def node_config(context: Context, role: str) -> Toml:
    """A node's configuration file; what differs from pod to pod comes by the environment (see `pod`)."""
    mqtt = context.spec.mqtt
    limits = {
        "allow_anonymous": mqtt.allow_anonymous,
        "max_packet_size_bytes": mqtt.max_packet_size_bytes,
        "max_inflight": mqtt.max_inflight,
        "max_mqueue_len": mqtt.max_mqueue_len,
        "max_awaiting_rel": mqtt.max_awaiting_rel,
        "idle_timeout_s": mqtt.idle_timeout_seconds,
        "max_connections": mqtt.max_connections,
    }
    redis: dict[str, str | int | bool | list[str]] = {"url": context.redis_url, "connect_timeout_s": REDIS_WAIT_S}
    if context.redis_password:
        redis["password_file"] = f"{SECRETS_DIR}/redis-password"
    return {
        "node": {"data_dir": DATA_DIR},
        "mqtt": {
            "listen": f"0.0.0.0:{MQTT_PORT}" if role == "replicant" else "",
            **{key: value for key, value in limits.items() if value is not None},
        },
        "cluster": {
            "listen": f"0.0.0.0:{LINK_PORT}",
            "seeds": [f"{context.core}:{LINK_PORT}"],
            "key_file": f"{SECRETS_DIR}/cluster-key",
        },
        "redis": redis,
        "management": {"listen": f"0.0.0.0:{MANAGEMENT_PORT}"},
        "log": {"format": "json"},
    }


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


def toml(tables: Toml) -> str:
    """TOML of one level of tables; JSON's strings, numbers, booleans and lists of strings are TOML's too."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
