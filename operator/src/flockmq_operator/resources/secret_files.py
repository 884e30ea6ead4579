"""Which key of which Secret a node reads, and at which path: Secrets reach pods as files of one volume.

Files follow their Secrets while a pod runs (the kubelet swaps them), so a renewed certificate rolls nothing. Somebody
else's Secrets are named by fields of the spec; free tables of the spec (authenticators, sources) name them where the
broker's own configuration has a path:

    secret_file: {secretKeyRef: {name: issuer, key: hmac}}      →  secret_file = "/etc/flockmq/secrets/of/issuer/hmac"
    headers_file: {X-Api-Key: {secretKeyRef: {…}}}              →  headers_file = {X-Api-Key = "/etc/flockmq/secrets/…"}
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import SECRETS_DIR, Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.spec import Listener, SpecError

REFERENCE = "secretKeyRef"
WRITTEN = f"{{{REFERENCE}: {{name: SECRET, key: KEY}}}}"
SECRET_KEYS = frozenset({"authorization", "password", "secret"})
"""Keys of the broker's configuration that hold a secret itself; each has a twin `KEY_file`."""
SECRET_HEADERS = frozenset({"proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
"""Headers that the broker refuses in its file, beside Authorization: their twin is `headers_file`."""
URL_WITH_PASSWORD = re.compile(r"[a-z+]+://[^/@\s]*:[^/@\s]+@", re.IGNORECASE)


class SecretFile(NamedTuple):
    path: str
    """Below SECRETS_DIR."""
    secret: str
    key: str
    named_by: str = ""
    """The field of the spec that names it; empty: the operator made it."""

    def __str__(self) -> str:
        return f"{SECRETS_DIR}/{self.path}"


def node_files(context: Context, component: Component) -> list[SecretFile]:
    """All that a core or a replicant reads; each once."""
    redis = redis_files(context, component).values()
    links = link_files(context, component).values()
    management = management_files(context).values()
    files = [cluster_key(context), *links, api_key(context), *management, *redis, *referenced(context)]
    if component == "core":
        files += users(context)
    if takes_clients(context, component):
        files += [file for listener in context.spec.listeners for file in tls_files(listener)]
    return list(dict.fromkeys(files))


def takes_clients(context: Context, component: Component) -> bool:
    """Whether it has the listeners. Replicants always do: those that are there may have to go on for a while."""
    return component in ("replicant", context.clients)


def named(context: Context) -> list[SecretFile]:
    """Those of Secrets that the spec names and somebody else makes."""
    files = node_files(context, "core") + node_files(context, "replicant") + s3_files(context)
    return [file for file in dict.fromkeys(files) if file.named_by]


def cluster_key(context: Context) -> SecretFile:
    return SecretFile("cluster-key", context.cluster_key, "key")


def link_files(context: Context, component: Component) -> dict[str, SecretFile]:
    """The certificates of links, by the broker's own keys of `[cluster]`: of this role alone. The authority's key stays
    in the Secret."""
    return {
        "certfile": SecretFile("links/tls.crt", context.links, f"{component}.crt"),
        "keyfile": SecretFile("links/tls.key", context.links, f"{component}.key"),
        "cacertfile": SecretFile("links/ca.crt", context.links, "ca.crt"),
    }


def api_key(context: Context) -> SecretFile:
    return SecretFile("api-key", context.api_key, "key")


def management_files(context: Context) -> dict[str, SecretFile]:
    """What the management port shows, by the broker's own keys of `[management]`; empty: it has no TLS."""
    tls = context.spec.management.tls
    if tls is None:
        return {}
    names = {"certfile": "tls.crt", "keyfile": "tls.key"}
    field = "spec.management.tls.secretName"
    return {key: SecretFile(f"management/{file}", tls.secret_name, file, field) for key, file in names.items()}


def redis_files(context: Context, component: Component) -> dict[str, SecretFile]:
    """What a component shows to Redis and its Sentinels, and whom it trusts: by the broker's own keys of `[redis]`."""
    external = context.spec.redis.external
    if external is None:
        files = {"password_file": SecretFile("redis-password", context.redis, f"{component}-password")}
        if context.redis_hosts:
            secret = SecretFile("redis-sentinel-password", context.redis, "sentinel-password")
            files["sentinel_password_file"] = secret
        if context.redis_tls:
            files["cacertfile"] = SecretFile("redis-tls/ca.crt", context.redis_certificates, "ca.crt")
        return files
    here = "spec.redis.external"
    files = {}
    if component == "replicant" and external.replicants:
        own = external.replicants.password_secret_ref
        field = f"{here}.replicants.passwordSecretRef"
        files["password_file"] = SecretFile("redis-password", own.name, own.key, field)
    elif secret_key := external.password_secret_ref:
        field = f"{here}.passwordSecretRef"
        files["password_file"] = SecretFile("redis-password", secret_key.name, secret_key.key, field)
    if sentinel := external.sentinel_password_secret_ref:
        field = f"{here}.sentinelPasswordSecretRef"
        files["sentinel_password_file"] = SecretFile("redis-sentinel-password", sentinel.name, sentinel.key, field)
    if authority := external.ca_secret_ref:
        field = f"{here}.caSecretRef"
        files["cacertfile"] = SecretFile("redis-tls/ca.crt", authority.name, authority.key, field)
    if own_tls := external.tls_secret_ref:
        for key, file in (("certfile", "tls.crt"), ("keyfile", "tls.key")):
            files[key] = SecretFile(f"redis-tls/{file}", own_tls.name, file, f"{here}.tlsSecretRef")
    return files


def s3_files(context: Context) -> list[SecretFile]:
    """With which the report comes to S3; none: as its ServiceAccount, by the cloud's own means."""
    s3 = context.spec.report.storage.s3
    if s3 is None or s3.credentials_secret_ref is None or not context.spec.report.enabled:
        return []
    secret = s3.credentials_secret_ref
    return [SecretFile("s3/credentials", secret.name, secret.key, "spec.report.storage.s3.credentialsSecretRef")]


def redis_username(context: Context, component: Component) -> str | None:
    """As whom a component comes to Redis; None: as its default user."""
    external = context.spec.redis.external
    if external is None:
        return component
    if component == "replicant" and external.replicants:
        return external.replicants.username
    return external.username


def users(context: Context) -> list[SecretFile]:
    """The users that a core puts into the log; empty: the spec has its own ways to tell who a client is."""
    given = context.spec.authentication.users
    if given:
        return [SecretFile(f"users/{given.key}", given.secret_name, given.key, "spec.authentication.users")]
    return [SecretFile("users/users.csv", context.mqtt_user, "users.csv")] if context.makes_user else []


def tls_files(listener: Listener) -> Iterator[SecretFile]:
    """Certificate and key first; see `listeners`."""
    tls = listener.tls
    if tls is None:
        return
    here, field = f"tls/{listener.name}", f"spec.listeners[{listener.name}].tls"
    for key in ("tls.crt", "tls.key"):
        yield SecretFile(f"{here}/{key}", tls.secret_name, key, f"{field}.secretName")
    if tls.ca_secret:
        yield SecretFile(f"{here}/ca.crt", tls.ca_secret.name, tls.ca_secret.key, f"{field}.caSecret")
    if tls.crl_secret:
        yield SecretFile(f"{here}/ca.crl", tls.crl_secret.name, tls.crl_secret.key, f"{field}.crlSecret")
    for number, server in enumerate(tls.sni):
        for key in ("tls.crt", "tls.key"):
            path = f"{here}/sni-{number}/{key}"
            yield SecretFile(path, server.secret_name, key, f"{field}.sni[{server.host}].secretName")


# --- references in free tables ----------------------------------------------------------------------------------------


def referenced(context: Context) -> list[SecretFile]:
    """What the spec's free tables refer to."""
    found: list[SecretFile] = []
    for field, tables in free_tables(context):
        resolved(tables, field, found)
    return found


def free_tables(context: Context) -> Iterator[tuple[str, Iterable[Manifest]]]:
    yield "spec.authentication.chain", context.spec.authentication.chain
    yield "spec.authorization.sources", context.spec.authorization.sources


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    key: str


class _Reference(msgspec.Struct, forbid_unknown_fields=True):
    secretKeyRef: _Key


def resolved(value: object, field: str, found: list[SecretFile]) -> object:
    """`value` with a path in each reference's place; the references are added to `found`. Raises SpecError."""
    if isinstance(value, dict) and REFERENCE in value:
        try:
            key = msgspec.convert(value, _Reference).secretKeyRef
        except msgspec.ValidationError as error:
            raise SpecError(f"{field}: {error}. Write {WRITTEN}") from None
        found.append(SecretFile(f"of/{key.name}/{key.key}", key.name, key.key, field))
        return str(found[-1])
    if isinstance(value, dict):
        for name, item in value.items():
            refuse_secret(name, item, f"{field}.{name}")
            refuse_reference(name, item, f"{field}.{name}")
        return {name: resolved(item, f"{field}.{name}", found) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, f"{field}[{number}]", found) for number, item in enumerate(value)]
    if value is None:
        raise SpecError(f"{field}: null is no value here: write one, or remove the key")
    refuse_url_with_password(value, field)
    return value


def refuse_secret(key: str, value: object, field: str) -> None:
    """Raises SpecError where a secret stands in the open: it would end in a ConfigMap. `${password}` in what a service
    is told is none, for it is the client's."""
    if isinstance(value, str) and "${" in value and field.endswith((f".headers.{key}", f".body.{key}")):
        return
    name, is_header = key.lower(), field.endswith(f".headers.{key}")
    if isinstance(value, str) and (name in SECRET_KEYS or (is_header and name in SECRET_HEADERS)):
        twin = f"headers_file: {{{key}: {WRITTEN}}}" if name in SECRET_HEADERS else f"{name}_file: {WRITTEN}"
        raise SpecError(
            f"{field}: a secret must not stand in a MqttCluster: put it into a Secret and write {twin} "
            "in an authenticator or a source"
        )


def refuse_reference(key: str, value: object, field: str) -> None:
    """Raises SpecError where the broker has no path: it would take it for the secret itself."""
    is_header = field.endswith(f".headers_file.{key}")
    takes_file = is_header or key == "path" or (key.endswith("file") and key != "headers_file")
    if isinstance(value, dict) and REFERENCE in value and not takes_file:
        raise SpecError(
            f"{field}: {REFERENCE} stands where a file is expected: write secret_file, password_file or "
            f"authorization_file: {WRITTEN}, or headers_file: {{NAME: {WRITTEN}}}"
        )


def refuse_url_with_password(value: object, field: str) -> None:
    """Raises SpecError where a URL has a password in it: it would end in a ConfigMap too."""
    if isinstance(value, str) and URL_WITH_PASSWORD.search(value):
        raise SpecError(
            f"{field} holds a URL with a password, which must not stand in a MqttCluster: put the password (for Redis) "
            "or the whole Authorization header (for HTTP) into a Secret and write password_file or "
            f"authorization_file: {WRITTEN} in an authenticator or a source"
        )
