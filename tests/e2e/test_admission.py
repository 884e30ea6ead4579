"""Nonsense is refused when it is applied, by a sentence that says what is wrong and what to write instead."""

import json

import pytest
from harness import Json, KubectlError, Namespace, kubectl

AUTOSCALING_WITHOUT_REQUEST: Json = {
    "replicants": {"resources": {"limits": {"memory": "1Gi"}}},
    "autoscaling": {"maxReplicas": 3},
}

MQTT: Json = {"name": "mqtt", "port": 1883}


def listener(**fields: object) -> Json:
    return {"listeners": [MQTT | fields]}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"cores": {"replicas": 2}}, "cores.replicas must be odd (1, 3, 5 or 7)"),
        ({"cores": {"replicas": 9}}, "should be less than or equal to 7"),
        ({"autoscaling": {"minReplicas": 5, "maxReplicas": 3}}, "maxReplicas must be at least autoscaling.minReplicas"),
        (AUTOSCALING_WITHOUT_REQUEST, "autoscaling needs replicants.resources.requests.cpu"),
        ({"autoscaling": {"maxReplicas": 3}, "replicants": {"replicas": 0}}, "needs replicants.replicas above 0"),
        (listener(nodePort=31884), "a nodePort needs service.type: NodePort"),
        (listener(type="ssl"), "those of type ssl and wss need tls.secretName"),
        (listener(port=4370), "the ports 4370 and 18083 are of the nodes' cluster link and management"),
        (listener(deny=["10.0.0.0/33"]), "proxyProtocolFrom hold networks such as 10.0.0.0/8, or addresses"),
        (listener(type="ssl", tls={"secretName": "s", "verify": "peer"}), "tls.verify: peer needs tls.caSecret"),
        (listener(proxyProtocol=True), "proxyProtocol needs proxyProtocolFrom: the networks of the load balancers"),
        (listener(proxyProtocolFrom=["10.0.0.1"]), "proxyProtocolFrom and proxyProtocolCommonName need proxyProtocol"),
        ({"listeners": [MQTT, {**MQTT, "name": "other"}]}, "each needs a port of its own"),
        ({"authentication": {"chain": [{"mechanism": "ldap"}]}}, 'Unsupported value: "ldap"'),
        ({"redis": {"external": {"url": "http://redis"}}}, "redis.external.url must look like redis://host:6379/0"),
        ({"service": {"externalTrafficPolicy": "Local"}}, "externalTrafficPolicy needs service.type: NodePort"),
        ({"service": {"loadBalancerClass": "x/y"}}, "loadBalancerClass need service.type: LoadBalancer"),
        ({"service": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}}, "PreferDualStack and Require"),
        ({"forwarding": "indirect"}, 'supported values: "direct", "via-core"'),
        ({"redis": {"replicas": 2}}, "redis.replicas must be 1, 3 or 5: when one of two fails"),
        (
            {"redis": {"external": {"url": "redis://r", "caSecretRef": {"name": "ca"}}}},
            "write a url that begins with redi",
        ),
        ({"redis": {"external": {"url": "redis://r"}, "replicas": 3}}, "redis.external stands alone"),
        ({"redis": {"external": {"url": "redis://r"}, "tls": True}}, "redis.external stands alone"),
        ({"replicas": 3}, 'unknown field "spec.replicas"'),
    ],
)
def test_a_bad_object_is_refused_in_a_clear_sentence(operator: None, spec: Json, sentence: str) -> None:
    manifest = {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttCluster", "metadata": {"name": "bad"}, "spec": spec}
    with pytest.raises(KubectlError) as refusal:
        kubectl("--namespace=default", "create", "--validate=strict", "-f", "-", stdin=json.dumps(manifest))
    assert sentence in str(refusal.value)
    assert Namespace("default").list("mqc") == []
