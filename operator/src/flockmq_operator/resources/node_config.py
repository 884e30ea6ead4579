"""A node's configuration file: what the spec says, by the broker's own names, with `spec.config` merged in.

What differs from pod to pod comes by the environment (see `pod`). No secret stands here, only paths of files.
"""

import tomllib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import tomli_w

from flockmq_operator.hot.keys import is_hot
from flockmq_operator.resources import secret_files
from flockmq_operator.resources.context import DATA_DIR, LINK_PORT, MANAGEMENT_PORT, SECRETS_DIR, Context
from flockmq_operator.resources.secret_files import SecretFile, refuse_secret, refuse_url_with_password, resolved
from flockmq_operator.spec import Listener, SpecError

ALL_ADDRESSES = "[::]"
"""Of a pod: it may have one of IPv4, of IPv6, or both."""
HAND_OVER_S = 30
"""Of a pod's grace period: what a node needs behind its last client, to hand over slots and wills."""
REDIS_WAIT_S = 60
"""How long a starting node waits for Redis before it ends and is started again."""
OPERATORS_OWN = (
    *("role", "node.name", "node.host", "node.data_dir", "cluster"),
    *(f"redis.{key}" for key in ("url", "username", "password_file", "sentinel_password_file", "min_replicas")),
    *(f"redis.{key}" for key in ("cacertfile", "certfile", "keyfile")),
)
"""What `spec.config` can't set though no field of the spec does; `cluster` stands for all below it but `FREE`."""
FREE = ("cluster.eviction_rate", "cluster.max_stale", "cluster.version_settle")
PROBED = ("management.certfile", "management.keyfile")
"""What the operator must know of to ask nodes by HTTPS how they are."""
USERS_KEYS = ("bootstrap_file", "bootstrap_type", "bootstrap_replace")
"""Of cores alone: it is a core that puts users into the log."""

Role = Literal["core", "replicant"]
Document = dict[str, Any]
"""TOML as `tomllib` reads and `tomli_w` writes it."""


def node_config(context: Context, role: Role) -> str:
    """The file's content. Raises SpecError where `spec.config` isn't TOML, or says what the operator says."""
    document = said_by_spec(context, role)
    merge(document, free_config(context.spec.config))
    listeners = document.get("listeners", {}) if secret_files.takes_clients(context, role) else {}
    tcp = listeners.setdefault("tcp", {})
    if not isinstance(tcp, dict):
        raise SpecError("spec.config: listeners.tcp must be a table, with a table for each listener by its name")
    tcp.setdefault("default", {"bind": ""})  # the broker listens there unless it is told not to
    document["listeners"] = listeners
    if role != "core":
        for key in USERS_KEYS:
            document["authentication"].pop(key, None)
    head = f"# Rendered from the MqttCluster {context.name}: change its spec, not this file.\n"
    return head + tomli_w.dumps(document)


def said_by_spec(context: Context, role: Role) -> Document:
    spec = context.spec
    document: Document = {
        "node": {"data_dir": DATA_DIR, "drain_timeout": f"{drain_s(spec.termination_grace_period_seconds)}s"},
        "mqtt": given(spec.mqtt),
        "listeners": {},
        "authentication": authentication(context),
        "authorization": authorization(context),
        "cluster": cluster(context, role),
        "redis": redis(context, role),
        "management": {
            "listen": f"{ALL_ADDRESSES}:{MANAGEMENT_PORT}",
            "api_key_file": str(secret_files.api_key(context)),
            **{key: str(file) for key, file in secret_files.management_files(context).items()},
        },
        "log": {"format": "json"},
    }
    for listener in spec.listeners:
        document["listeners"].setdefault(listener.type, {})[listener.name] = listener_table(listener)
    return document


def drain_s(grace_s: int) -> int:
    """By when a node that ends has sent its clients to others, of its grace period."""
    return max(grace_s - HAND_OVER_S, grace_s * 2 // 3)


def cluster(context: Context, role: Role) -> Document:
    table: Document = {
        "listen": f"{ALL_ADDRESSES}:{LINK_PORT}",
        "seeds": [f"{context.core}:{LINK_PORT}"],
        "key_file": str(secret_files.cluster_key(context)),
        "forwarding": context.spec.forwarding,
        **{key: str(file) for key, file in secret_files.link_files(context, role).items()},
    }
    if role == "core":  # majorities are of cores alone; replicants needn't be restarted for another number of them
        table["cores"] = context.spec.cores.replicas
        if context.spec.redis.external:  # two MqttClusters may name one Redis
            table["name"] = f"{context.namespace}/{context.name}"
    if (rebalance := context.spec.rebalance) and secret_files.takes_clients(context, role):
        table["rebalance"] = {
            "enabled": True,
            "relative_threshold": rebalance.relative_threshold_percent / 100,
            **({"absolute_threshold": rebalance.absolute_threshold} if rebalance.absolute_threshold else {}),
            "wait": f"{rebalance.wait_seconds}s",
            **rebalance.weights.said(),
        }
    return table


def redis(context: Context, role: Role) -> Document:
    table: Document = {"url": context.redis_url, "connect_timeout": REDIS_WAIT_S}
    if username := secret_files.redis_username(context, role):
        table["username"] = username
    if context.redis_min_replicas:
        table["min_replicas"] = context.redis_min_replicas
    return table | {key: str(file) for key, file in secret_files.redis_files(context, role).items()}


def given(part: msgspec.Struct) -> Document:
    """The fields that were given, as keys; the CRD has the broker's names, in camel case."""
    values = {name: getattr(part, name) for name in part.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def listener_table(listener: Listener) -> Document:
    optional = {
        "zone": listener.zone,
        "path": listener.path,
        "allowed_origins": list(listener.allowed_origins) or None,
        "proxy_protocol": listener.proxy_protocol or None,
        "proxy_protocol_from": list(listener.proxy_protocol_from) or None,
        "proxy_protocol_common_name": listener.proxy_protocol_common_name or None,
        "allow": list(listener.allow) or None,
        "deny": list(listener.deny) or None,
    }
    table: Document = {"bind": f"{ALL_ADDRESSES}:{listener.port}"}
    table |= {key: value for key, value in optional.items() if value is not None}
    return table | given(listener.limits) | tls_table(listener)


def tls_table(listener: Listener) -> Document:
    tls = listener.tls
    if tls is None:
        return {}
    here = f"{SECRETS_DIR}/tls/{listener.name}"
    table: Document = {"certfile": f"{here}/tls.crt", "keyfile": f"{here}/tls.key", "verify": tls.verify}
    if tls.ca_secret:
        table["cacertfile"] = f"{here}/ca.crt"
    if tls.crl_secret:
        table["crlfile"] = f"{here}/ca.crl"
    if tls.fail_if_no_peer_cert:
        table["fail_if_no_peer_cert"] = True
    if tls.versions:
        table["versions"] = list(tls.versions)
    if tls.sni:
        table["sni"] = [
            {"host": server.host, "certfile": f"{here}/sni-{at}/tls.crt", "keyfile": f"{here}/sni-{at}/tls.key"}
            for at, server in enumerate(tls.sni)
        ]
    return table


def authentication(context: Context) -> Document:
    """Raises SpecError."""
    spec = context.spec.authentication
    if spec.users and not context.asks_the_log:
        raise SpecError(
            "spec.authentication.users: nothing in the chain asks for them: add mechanism "
            "password_based:built_in_database to spec.authentication.chain, or remove users"
        )
    found: list[SecretFile] = []
    table: Document = {
        "allow_anonymous": spec.allow_anonymous,
        "chain": resolved(spec.chain, "spec.authentication.chain", found),
    }
    for users in secret_files.users(context):
        table["bootstrap_file"] = str(users)
        table["bootstrap_type"] = spec.users.passwords if spec.users else "plain"
        table["bootstrap_replace"] = True
    return table


def authorization(context: Context) -> Document:
    """The rules are the first source; what isn't said of a rule holds for all."""
    spec = context.spec.authorization
    found: list[SecretFile] = []
    sources: list[Document] = []
    if spec.rules:
        rules = [{key: value for key, value in given(rule).items() if value != ()} for rule in spec.rules]
        sources.append({"type": "file", "rules": msgspec.to_builtins(rules)})
    others = resolved(spec.sources, "spec.authorization.sources", found)
    assert isinstance(others, list)
    table: Document = {"sources": [*sources, *others]} if sources or others else {}
    if spec.no_match:
        table["no_match"] = spec.no_match
    if spec.deny_action:
        table["deny_action"] = spec.deny_action
    if spec.revoked_subscriptions:
        table["revoked_subscriptions"] = spec.revoked_subscriptions
    return table


# --- spec.config ------------------------------------------------------------------------------------------------------


def free_config(text: str) -> Document:
    """What `spec.config` says. Raises SpecError."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # no TOML, or a number of thousands of digits
        raise SpecError(f"spec.config: not valid TOML: {error}") from None
    for path, key, value in leaves(document):
        is_own = path in OPERATORS_OWN or path.startswith(tuple(f"{own}." for own in OPERATORS_OWN))
        if is_own and path not in FREE:
            raise SpecError(f"spec.config: {path} is the operator's to set: remove it")
        if path in PROBED:
            raise SpecError(f"spec.config: {path}: set spec.management.tls instead, or probes go on by plain HTTP")
        refuse_secret(key, value, f"spec.config: {path}")
        refuse_url_with_password(value, f"spec.config: {path}")
    return document


def hot_config(text: str) -> Document:
    """What `spec.config` says that nodes change while they run: dotted path → value. Raises SpecError."""
    return {path: value for path, _, value in leaves(free_config(text)) if is_hot(path)}


def leaves(value: object, path: str = "", key: str = "") -> Iterator[tuple[str, str, object]]:
    """(dotted path, its last key, value) of each value that is no table and no list."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from leaves(below, f"{path}.{name}" if path else name, name)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from leaves(below, f"{path}[{number}]", key)
    else:
        yield path, key, value


def merge(document: Document, other: Document, path: str = "") -> None:
    """Put `other` into `document`. Raises SpecError at a key that both have: none silently wins."""
    for key, value in other.items():
        here = f"{path}.{key}" if path else key
        if key not in document:
            document[key] = value
        elif isinstance(document[key], dict) and isinstance(value, dict):
            merge(document[key], value, here)
        else:
            raise SpecError(
                f"spec.config: {here} is said by another field of the spec, or by the operator: remove it here"
            )
