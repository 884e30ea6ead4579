"""What is wrong with a MqttCluster, and what to do about it."""

from datetime import UTC, datetime

from flockmq_operator.kubectl.advice import findings
from flockmq_operator.manifest import Manifest
from unit.operator.kubectl.harness import WELL, conditions
from unit.operator.world import mqtt_cluster

NOW = datetime(2026, 11, 26, 3, tzinfo=UTC)


def cluster(status: Manifest | None, generation: int = 1) -> Manifest:
    return mqtt_cluster(generation=generation, status=status)


def test_what_stalls_it_is_said_once() -> None:
    said = "Secret tls in namespace fleet doesn't exist: create it"
    found = findings(
        cluster(
            conditions(
                Ready=("False", "SecretMissing", said),
                Available=("True", "Serving", "clients are served"),
                Stalled=("True", "SecretMissing", said),
                ReplicantsReady=("False", "Blocked", "2 of 2 ready; its pods stay as they are: SecretMissing"),
            )
        ),
        NOW,
    )
    assert found.headline == "clients are served; not all is as the spec asks"
    assert [wrong.text.split()[0] for wrong in found.wrong] == ["Stalled", "ReplicantsReady"]
    assert found.wrong[0].text == f"Stalled is True for 3h (SecretMissing): {said}"
    assert found.wrong[1].todo == "do what Stalled says"
    assert found.fine == ["Available"]


def test_a_cluster_that_the_operator_has_not_seen_points_to_the_operator() -> None:
    found = findings(cluster(None), NOW)
    assert found.headline == "whether clients are served isn't known; whether all is as the spec asks isn't known"
    (wrong,) = found.wrong
    assert "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=flockmq-operator" in wrong.todo
    (wrong,) = findings(cluster(WELL, generation=4), NOW).wrong
    assert wrong.text == "the operator hasn't looked at generation 4 of the spec yet: what is here is of 1"


def test_a_pause_names_the_command_that_ends_it() -> None:
    sentence = "spec.pause: the operator only reports; 2 changes wait: Service demo, StatefulSet demo-core"
    status = conditions(Ready=("False", "Paused", sentence), Reconciling=("False", "Paused", sentence))
    found = findings(cluster(status), NOW)
    assert found.wrong[0].todo == (
        'kubectl patch mqc demo --namespace fleet --type=merge --patch \'{"spec":{"pause":false}}\''
    )
    assert found.working == [sentence]


def test_what_a_newer_operator_says_is_shown_too() -> None:
    (wrong,) = findings(cluster(conditions(Tuned=("False", "Odd", "too slow"))), NOW).wrong
    assert wrong.text == "Tuned is False for 3h (Odd): too slow"
