"""The autoscaler of replicants: its floor, and what is passed through."""

from flockmq_operator.manifest import Ref
from unit.operator.built import built


def test_the_autoscaler_scales_the_mqtt_cluster_above_the_floor() -> None:
    spec = built({"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}, floor=5)[
        Ref("HorizontalPodAutoscaler", "demo")
    ]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttCluster", "name": "demo"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (5, 9)


def test_further_metrics_and_behavior_are_passed_through() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "m"}}}
    autoscaling = {"maxReplicas": 9, "metrics": [metric], "behavior": {"scaleUp": {}}}
    spec = built({"autoscaling": autoscaling})[Ref("HorizontalPodAutoscaler", "demo")]["spec"]
    assert [item["type"] for item in spec["metrics"]] == ["Resource", "Pods"]
    assert spec["behavior"] == {"scaleUp": {}}
