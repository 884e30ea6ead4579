"""What the operator is told by its environment: one variable a field, checked before anything starts."""

import os
from collections.abc import Mapping

import msgspec

EVERYTHING = "*"


class SettingsError(Exception):
    """A variable that is missing or wrong; the message names it and says how to mend it."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The environment's variables, in lower case."""

    pod_name: str
    """This process' identity in the Lease."""
    pod_namespace: str
    """Where the Lease is, and where NetworkPolicies let the operator in from."""
    flockmq_broker_image: str
    flockmq_redis_image: str
    flockmq_analytics_image: str
    flockmq_image_pull_policy: str = "IfNotPresent"
    flockmq_watch_namespaces: str = ""
    """Namespaces, joined by commas; empty: the operator's own; `*`: all."""
    flockmq_image_registries: str = ""
    """From where MqttClusters may name images (see `images`), joined by commas; `*`: from anywhere."""
    flockmq_log_level: str = "INFO"
    flockmq_log_format: str = "json"
    flockmq_health_port: int = 8080

    @property
    def namespaces(self) -> list[str]:
        """Empty: all."""
        named = _listed(self.flockmq_watch_namespaces) or [self.pod_namespace]
        return [] if named == [EVERYTHING] else named

    @property
    def image_registries(self) -> list[str]:
        return _listed(self.flockmq_image_registries)


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


CHOICES = {
    "flockmq_image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "flockmq_log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
    "flockmq_log_format": ("json", "plain"),
}


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Decode `environ`; raises SettingsError."""
    known = {field.name for field in msgspec.structs.fields(Settings)}
    given = {name.lower(): value for name, value in environ.items() if name.lower() in known}
    unknown = [name for name in environ if name.startswith("FLOCKMQ_") and name.lower() not in known]
    if unknown:
        raise SettingsError(f"environment: {', '.join(sorted(unknown))}: no such setting; remove it or mend its name")
    for field in msgspec.structs.fields(Settings):
        if field.required and not given.get(field.name):
            raise SettingsError(f"environment: {field.name.upper()} is not set; the Helm chart sets it")
    for name, choices in CHOICES.items():
        if name in given and given[name] not in choices:
            raise SettingsError(f"environment: {name.upper()}={given[name]!r} must be one of {', '.join(choices)}")
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"environment: {str(error).replace('$.', '').upper()}") from None
