"""The Secrets the operator makes: the passwords of Redis' users, the key with which nodes authenticate to one another,
the key of the REST API, and a first user for clients.

Made once. What is in them is drawn here, never read back, compared, applied again or logged: `plan` only asks whether
they exist. The exceptions are the Secrets with certificates, which `renewal` fills, and with the cluster's key: it
replaces what is in them.
Redis reads its users and their passwords from files, so that none stands on a command line; `users.csv` is the first
user as the cores read it.
"""

import secrets as entropy
from base64 import b64encode
from collections.abc import Iterator

from flockmq_operator.cluster_key import fresh_key
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import REDIS_TLS, metadata
from flockmq_operator.resources.redis_users import Passwords, redis_acl, redis_conf, sentinel_acl, sentinel_conf

SECRET_BYTES = 32
FIRST_USER = "mqtt"


def secrets(context: Context) -> Iterator[Manifest]:
    """The Secrets, each with a fresh value: to be created where missing, never applied."""
    yield _secret(context, context.cluster_key, fresh_key(context.spec.cluster_key_rotation))
    yield _secret(context, context.api_key, {"key": entropy.token_hex(SECRET_BYTES)})
    yield _secret(context, context.links, {})
    if context.spec.redis.external is None:
        passwords = _secret(context, context.redis, redis_secret())
        if context.redis_tls:
            passwords["metadata"]["annotations"] = {REDIS_TLS: "true"}
            yield _secret(context, context.redis_certificates, {})
        yield passwords
    if context.makes_user:
        password = entropy.token_hex(SECRET_BYTES)
        line = f"user_id,password,is_superuser\n{FIRST_USER},{password},false\n"
        yield _secret(context, context.mqtt_user, {"username": FIRST_USER, "password": password, "users.csv": line})


def redis_secret() -> dict[str, str]:
    """Each user's password as a client reads it, and all of them as Redis and Sentinel do."""
    drawn = Passwords(*(entropy.token_hex(SECRET_BYTES) for _ in Passwords._fields))
    return {
        "password": drawn.admin,
        "core-password": drawn.core,
        "replicant-password": drawn.replicant,
        "report-password": drawn.report,
        "sentinel-password": drawn.sentinel,
        "redis.conf": redis_conf(drawn),
        "users.acl": redis_acl(drawn),
        "sentinel.conf": sentinel_conf(drawn),
        "sentinel.acl": sentinel_acl(drawn),
    }


def _secret(context: Context, name: str, values: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(context, name),
        "type": "Opaque",
        "data": {key: b64encode(value.encode()).decode() for key, value in values.items()},
    }
