"""The ConfigMaps: the files of a component, in one that never changes and is named by their digest. A pod template
names its own, so a change rolls pods, and those of before can start again with what they were started with."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from flockmq_operator.hot.keys import other_hot_keys
from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity
from flockmq_operator.resources.context import REDIS_DATA_DIR, REDIS_PORT, SECRETS_DIR, TLS_DIR, Context
from flockmq_operator.resources.labels import Component, metadata
from flockmq_operator.resources.node_config import hot_config, node_config
from flockmq_operator.spec import SpecError

FILES: dict[Component, tuple[str, ...]] = {
    "core": ("core.toml",),
    "replicant": ("replicant.toml",),
    "redis": ("valkey.conf", "valkey.sh"),
    "report": (),
    "backup": ("backup.sh",),
    "restore": ("backup.sh",),
}
"""The files of each component; not each cluster has each."""
SCRIPT = (Path(__file__).parent / "valkey.sh").read_text()
BACKUP_SCRIPT = (Path(__file__).parent / "backup.sh").read_text()

MAXMEMORY_PERCENT = 60
"""Of Redis' memory limit; the rest is for the pages that a rewrite of its file copies, and for replicas."""
REDIS_MEMORY_MIN = 32 * 2**20
"""Bytes. Of a limit of 0 would be made `maxmemory 0`, which is none."""
REPLICA_LAG_MAX_S = 3
"""How long a replica that says nothing still counts."""
BACKLOG_PERCENT, BACKLOG_MAX_BYTES = 5, 64 * 1024 * 1024
"""What is kept for a replica that was away for a moment: of the memory limit, and at most."""
OUTPUT_PERCENT = 10
"""What may wait for one replica, of the memory limit; half of it for a minute."""


def config_maps(context: Context) -> Iterator[Manifest]:
    found = files(context)
    for component in FILES:
        if data := files_of(component, found):
            yield {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(context, config_name(context, component, found), component),
                "immutable": True,
                "data": data,
            }


def config_name(context: Context, component: Component, files: Mapping[str, str]) -> str:
    return f"{context.name}-{component}-{digest(component, files)}"


def files(context: Context) -> dict[str, str]:
    """File name → content."""
    found = made_files(context)
    hot = frozenset(hot_config(context.spec.config))
    for name, text in context.kept_files.items():
        if name in found and other_hot_keys(tomllib.loads(text), tomllib.loads(found[name]), hot):
            found[name] = text
    return found


def made_files(context: Context) -> dict[str, str]:
    """As the spec alone asks for them."""
    found = {"core.toml": node_config(context, "core"), "replicant.toml": node_config(context, "replicant")}
    if context.spec.redis.external is None:
        found["valkey.conf"] = valkey_conf(context)
    if context.redis_hosts or context.redis_tls:
        found["valkey.sh"] = SCRIPT
    if context.spec.backup or context.spec.restore:
        found["backup.sh"] = BACKUP_SCRIPT
    return found


def files_of(component: Component, files: Mapping[str, str]) -> dict[str, str]:
    """The component's own among `files`."""
    return {name: files[name] for name in FILES[component] if name in files}


def digest(component: Component, files: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join(files_of(component, files).values()).encode()).hexdigest()[:16]


def valkey_conf(context: Context) -> str:
    said = context.spec.redis.resources.limits["memory"]
    limit = int(quantity(said))
    if limit < REDIS_MEMORY_MIN:
        raise SpecError(
            f"spec.redis.resources.limits.memory is {said}, which is {limit:,} bytes: Redis needs "
            f"{REDIS_MEMORY_MIN // 2**20}Mi at least"
        )
    directives = [
        f"include {SECRETS_DIR}/redis.conf",
        f"aclfile {SECRETS_DIR}/users.acl",
        *_listening(context),
        "bind * -::*",
        f"dir {REDIS_DATA_DIR}",
        "appendonly yes",
        "appendfsync always",
        'save ""',
        f"maxmemory {limit * MAXMEMORY_PERCENT // 100}",
        "maxmemory-policy noeviction",
    ]
    if context.redis_hosts:
        directives += [
            f"min-replicas-to-write {context.redis_min_replicas}",
            f"min-replicas-max-lag {REPLICA_LAG_MAX_S}",
            "repl-diskless-sync-delay 0",  # a primary that came back takes no writes before a replica has its copy
            f"repl-backlog-size {min(limit * BACKLOG_PERCENT // 100, BACKLOG_MAX_BYTES)}",
            f"client-output-buffer-limit replica {limit * OUTPUT_PERCENT // 100} {limit * OUTPUT_PERCENT // 200} 60",
        ]
    return "\n".join(directives) + "\n"


def _listening(context: Context) -> list[str]:
    """On which port, and how: the Sentinels do likewise, but for the number (valkey.sh)."""
    if not context.redis_tls:
        return [f"port {REDIS_PORT}"]
    return [
        "port 0",
        f"tls-port {REDIS_PORT}",
        "tls-replication yes",  # so replicas come, and Sentinels
        "tls-auth-clients no",  # who comes has a password
        "tls-protocols TLSv1.3",
        f"tls-cert-file {TLS_DIR}/tls.crt",
        f"tls-key-file {TLS_DIR}/tls.key",
        f"tls-ca-cert-file {TLS_DIR}/ca.crt",
    ]
