"""Listeners, probes and the first user, as a node's pods have them."""

import json
from base64 import b64decode

import pytest

from flockmq_operator.manifest import Manifest, Ref
from unit.operator.built import COMPONENTS, built, restricted_violations, templates

LISTENERS = [
    {"name": "mqtt", "port": 1883, "nodePort": 31883},
    {"name": "wss", "type": "wss", "port": 443, "tls": {"secretName": "tls"}},
]


def test_each_listener_has_a_port_of_the_service_and_of_the_pod_and_is_let_in() -> None:
    objects = built({"service": {"type": "NodePort"}, "listeners": LISTENERS})
    assert objects[Ref("Service", "demo")]["spec"]["ports"] == [
        {"name": "mqtt", "port": 1883, "targetPort": "mqtt", "nodePort": 31883},
        {"name": "wss", "port": 443, "targetPort": "wss"},
    ]
    pod = objects[Ref("Deployment", "demo-replicant")]["spec"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert ports == {"mqtt": 1883, "wss": 443, "link": 4370, "management": 18083}
    policy = objects[Ref("NetworkPolicy", "demo-replicant")]["spec"]["ingress"]
    assert [port["port"] for port in policy[0]["ports"]] == [1883, 443]


def test_a_port_below_1024_needs_a_sysctl_that_the_restricted_standard_admits() -> None:
    pods = [templates({"listeners": listeners})["replicant"]["spec"] for listeners in (LISTENERS[:1], LISTENERS)]
    assert "sysctls" not in pods[0]["securityContext"]
    assert pods[1]["securityContext"]["sysctls"] == [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    assert list(restricted_violations(pods[1])) == []


def test_the_first_user_is_read_by_cores_alone() -> None:
    found = templates()
    assert [name for name in COMPONENTS if "demo-mqtt-user" in json.dumps(found[name])] == ["core"]


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ({}, True),
        ({"chain": [{"mechanism": "scram:built_in_database"}]}, True),
        ({"chain": [{"mechanism": "jwt"}]}, False),
        ({"chain": []}, False),
        ({"users": {"secretName": "mine"}}, False),
    ],
)
def test_a_first_user_is_made_where_nobody_else_names_users(spec: Manifest, made: bool) -> None:
    assert (Ref("Secret", "demo-mqtt-user") in built({"authentication": spec})) is made


def test_the_first_users_file_holds_its_password() -> None:
    data = {key: b64decode(value).decode() for key, value in built()[Ref("Secret", "demo-mqtt-user")]["data"].items()}
    assert data["username"] == "mqtt"
    assert data["users.csv"].splitlines() == ["user_id,password,is_superuser", f"mqtt,{data['password']},false"]


def test_probes_speak_tls_where_management_does() -> None:
    for spec, scheme in (({}, None), ({"management": {"tls": {"secretName": "cert"}}}, "HTTPS")):
        for component in ("core", "replicant"):
            container = templates(spec)[component]["spec"]["containers"][0]
            probes = [
                container[f"{name}Probe"]["httpGet"].get("scheme") for name in ("startup", "liveness", "readiness")
            ]
            assert probes == [scheme] * 3


@pytest.mark.parametrize(("replicas", "labelled"), [(2, ["replicant"]), (0, ["core", "replicant"])])
def test_pods_with_listeners_say_that_they_take_clients(replicas: int, labelled: list[str]) -> None:
    found = templates({"replicants": {"replicas": replicas}})
    labels = {name: found[name]["metadata"]["labels"].get("flockmq.io/takes-clients") for name in COMPONENTS}
    assert {name: label for name, label in labels.items() if label} == dict.fromkeys(labelled, "true")
