"""A cluster is backed up, and deleted with all its volumes; another one begins with the backup."""

import pathlib
from collections.abc import Iterator

import pytest
from harness import Json, MqttCluster, Namespace, until

HERE = pathlib.Path(__file__).parent
SMALL = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
SMALL_REDIS = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}


@pytest.fixture(scope="module")
def namespace(operator: None) -> Iterator[Namespace]:
    made = Namespace("flockmq-backup")
    made.create()
    yield made
    made.delete()


def test_what_was_acknowledged_before_a_backup_is_there_after_everything_was_deleted(namespace: Namespace) -> None:
    namespace.apply((HERE / "backup.yaml").read_text())
    saved = MqttCluster(namespace, "saved")
    saved.wait_ready(timeout_s=360)
    with namespace.forward(saved.ready_pods("replicant")[0], 1883) as port:
        with saved.client(port, client_id="sleeper", lasts=True) as sleeper:
            sleeper.subscribe("queue/#", 1)
        with saved.client(port) as publisher:
            publisher.publish("queue/a", "waits", qos=1)
            publisher.publish("retained/a", "stays", qos=1, retain=True)

    namespace.kubectl("create", "job", "backup-now", "--from=cronjob/saved-backup")
    until(lambda: ended(namespace), "the job ended", 300, lambda: namespace.list("pods", "job-name=backup-now"))
    said = namespace.kubectl("logs", "job/backup-now", "--all-containers")
    assert namespace.get("job", "backup-now")["status"].get("succeeded") == 1, said
    assert "KiB, of Redis at saved-redis" in said

    namespace.kubectl("delete", "mqc", "saved", timeout_s=180)
    until(lambda: claims(namespace) == ["backups"], "its volumes are gone", 120, lambda: claims(namespace))

    namespace.apply(restored("again"))
    again = MqttCluster(namespace, "again")
    again.wait_ready(timeout_s=360)
    assert "is restored" in namespace.kubectl("logs", "job/again-restore")
    with namespace.forward(again.ready_pods("replicant")[0], 1883) as port:
        with again.client(port, client_id="sleeper", lasts=True) as sleeper:
            assert sleeper.receive() == ("queue/a", "waits")
        with again.client(port) as watcher:
            watcher.subscribe("retained/#", 1)
            assert watcher.receive() == ("retained/a", "stays")


def test_a_cluster_whose_volumes_stayed_is_not_restored_beside_them(namespace: Namespace) -> None:
    namespace.kubectl("delete", "mqc", "again", timeout_s=180)
    namespace.apply(restored("again"))
    again = MqttCluster(namespace, "again")
    until(lambda: again.condition("Stalled").get("reason") == "RestoreRefused", "it is refused", 120, again.object)
    assert "data-again-core-0" in again.condition("Stalled")["message"]
    until(lambda: again.pods("core") == again.pods("redis") == [], "there are no pods", 120, lambda: again.pods("core"))


def restored(name: str) -> Json:
    return {
        "apiVersion": "flockmq.io/v1alpha1",
        "kind": "MqttCluster",
        "metadata": {"name": name},
        "spec": {
            "cores": {"resources": SMALL},
            "replicants": {"replicas": 1, "resources": SMALL},
            "redis": {"resources": SMALL_REDIS},
            "restore": {"claimName": "backups", "backup": "saved"},
            "report": {"suspend": True},
            "terminationGracePeriodSeconds": 30,
        },
    }


def claims(namespace: Namespace) -> list[str]:
    """But for the report's, which goes with its MqttCluster at some time."""
    names = [claim["metadata"]["name"] for claim in namespace.list("pvc")]
    return sorted(name for name in names if not name.endswith("-report"))


def ended(namespace: Namespace) -> bool:
    status = namespace.get("job", "backup-now")["status"]
    return any(condition["type"] in ("Complete", "Failed") for condition in status.get("conditions", []))
