"""What builders build from: the decoded MqttCluster, the operator's settings, and the names that follow from them."""

from typing import Literal

import msgspec

from flockmq_operator.settings import Settings
from flockmq_operator.spec import MqttCluster, Spec

LINK_PORT = 4370
MANAGEMENT_PORT = 18083
REDIS_PORT = 6379
SENTINEL_PORT = 26379
SENTINEL_NAME = "flockmq"
"""What Sentinels call the primary that they watch."""

CONFIG_DIR = "/etc/flockmq"
SECRETS_DIR = "/etc/flockmq/secrets"
DATA_DIR = "/var/lib/flockmq"
BACKUPS_DIR = "/backups"
REDIS_DATA_DIR = "/data"
TLS_DIR = "/etc/flockmq/tls"
"""The certificates that a pod of Redis shows."""

BUILT_IN = ":built_in_database"
"""How the mechanisms end that ask the users in the cluster's log."""


class Context(msgspec.Struct, frozen=True):
    cluster: MqttCluster
    settings: Settings
    floor: int | None = None
    """The autoscaler's minReplicas; None: autoscaling.minReplicas."""

    may_update: bool = True
    """Whether pods may be replaced because this operator makes others, where the spec lets it (`updates`)."""
    served_by: str = ""
    """To whose pods the clients' Service leads now."""
    kept_files: dict[str, str] = {}
    """Files that pods have now, by name: each stays if what it says otherwise nodes change while they run (`hot`)."""

    @property
    def clients(self) -> Literal["core", "replicant"]:
        """Who takes clients: cores, where the spec asks for no replicants."""
        none = self.spec.replicants.replicas == 0 and self.spec.autoscaling is None
        return "core" if none else "replicant"

    @property
    def spec(self) -> Spec:
        return self.cluster.spec

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def namespace(self) -> str:
        return self.cluster.namespace

    @property
    def core(self) -> str:
        return f"{self.name}-core"

    @property
    def replicant(self) -> str:
        return f"{self.name}-replicant"

    @property
    def redis(self) -> str:
        return f"{self.name}-redis"

    @property
    def report(self) -> str:
        return f"{self.name}-report"

    @property
    def ingest(self) -> str:
        return f"{self.name}-ingest"

    @property
    def report_driver(self) -> str:
        return f"{self.name}-report-driver"

    @property
    def executors(self) -> int:
        """How many Spark makes for a report. They share no volume: so there are none without S3."""
        return self.spec.report.executors.replicas if self.spec.report.storage.s3 else 0

    @property
    def backup(self) -> str:
        return f"{self.name}-backup"

    @property
    def restore(self) -> str:
        return f"{self.name}-restore"

    @property
    def cluster_key(self) -> str:
        return f"{self.name}-cluster-key"

    @property
    def links(self) -> str:
        return f"{self.name}-links"

    @property
    def api_key(self) -> str:
        return f"{self.name}-api-key"

    @property
    def redis_certificates(self) -> str:
        return f"{self.name}-redis-tls"

    @property
    def redis_tls(self) -> bool:
        """Whether the Redis that the operator runs speaks TLS, which a new one does unless told otherwise."""
        return self.spec.redis.external is None and self.spec.redis.tls is not False

    @property
    def redis_hosts(self) -> list[str]:
        """The pods of a Redis with replicas, each the name of a Service too; empty: it has none, or isn't ours."""
        count = self.spec.redis.replicas
        return [f"{self.redis}-{number}" for number in range(count)] if count > 1 else []

    @property
    def redis_min_replicas(self) -> int:
        """How many replicas must have a write, so that a majority of the pods has it: any primary that a majority of
        the Sentinels can choose then has it too."""
        external = self.spec.redis.external
        return external.min_replicas if external else self.spec.redis.replicas // 2

    @property
    def replicants(self) -> int:
        """How many; with autoscaling never fewer than the floor, whoever writes the number."""
        said, autoscaling = self.spec.replicants.replicas, self.spec.autoscaling
        return max(said, self.floor or autoscaling.min_replicas) if autoscaling else said

    @property
    def redis_url(self) -> str:
        external = self.spec.redis.external
        if external:
            return external.url
        scheme = "rediss" if self.redis_tls else "redis"
        if self.redis_hosts:
            sentinels = ",".join(f"{host}:{SENTINEL_PORT}" for host in self.redis_hosts)
            return f"{scheme}+sentinel://{sentinels}/{SENTINEL_NAME}"
        return f"{scheme}://{self.redis}:{REDIS_PORT}/0"

    @property
    def mqtt_user(self) -> str:
        return f"{self.name}-mqtt-user"

    @property
    def makes_user(self) -> bool:
        """Whether the operator makes a first user: somebody must be able to connect where nobody else named users."""
        return self.spec.authentication.users is None and self.asks_the_log

    @property
    def asks_the_log(self) -> bool:
        """Who may connect is asked of the users in the cluster's log, among others."""
        return any(str(entry.get("mechanism")).endswith(BUILT_IN) for entry in self.spec.authentication.chain)

    @property
    def redis_image(self) -> str:
        return self.spec.redis.image or self.settings.flockmq_redis_image

    @property
    def image_pull_policy(self) -> str:
        return self.spec.image_pull_policy or self.settings.flockmq_image_pull_policy
