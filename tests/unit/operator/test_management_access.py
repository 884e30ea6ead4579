"""Which core is asked, with which key, and why none can be."""

import hashlib
import ssl

import pytest
import trustme

from flockmq_operator.management_access import Absent, find_access, fingerprint_of, url_of
from flockmq_operator.management_api import Access
from flockmq_operator.manifest import Manifest
from unit.operator.users.harness import core, secret
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster

KEY = secret("demo-api-key", {"key": b"letters\n"})


async def find(*objects: Manifest) -> Access | Absent:
    return await find_access(World(*objects), SETTINGS, NAMESPACE, "demo")


async def test_the_first_ready_core_is_asked_by_its_address() -> None:
    unready, leaving = core(0), core(1)
    unready["status"]["conditions"] = []
    leaving["metadata"]["deletionTimestamp"] = "now"
    cores = [core(10), core(2)]
    for number, pod in enumerate(cores):
        pod["status"]["podIP"] = f"10.0.1.{number}"
    assert await find(mqtt_cluster(), KEY, unready, leaving, *cores) == Access("http://10.0.1.1:18083", "letters", None)


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert url_of("fd00::7", with_tls=True) == "https://[fd00::7]:18083"


async def test_a_core_with_tls_must_show_the_certificate_of_its_secret() -> None:
    certificate = trustme.CA().issue_cert("any.example")
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems) + trustme.CA().cert_pem.bytes()
    cluster = mqtt_cluster({"management": {"tls": {"secretName": "cert"}}})
    found = await find(cluster, KEY, core(), secret("cert", {"tls.crt": chain}))
    assert isinstance(found, Access)
    assert found.url.startswith("https://")
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    assert found.fingerprint == hashlib.sha256(der).digest()
    assert isinstance(await find(cluster, KEY, core()), Absent), "never without"


@pytest.mark.parametrize("chain", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_has_no_fingerprint(chain: bytes) -> None:
    assert fingerprint_of(chain) is None


@pytest.mark.parametrize(
    ("objects", "reason", "sentence"),
    [
        ([], "ClusterMissing", "there is no MqttCluster demo in namespace fleet: create it"),
        ([mqtt_cluster({"cores": {"replicas": "x"}})], "ClusterNotReady", "must be mended first"),
        ([mqtt_cluster({"pause": True})], "ClusterPaused", "spec.pause"),
        ([mqtt_cluster(), KEY], "ClusterNotReady", "no core of MqttCluster demo in namespace fleet is ready"),
        ([mqtt_cluster(), core()], "ClusterNotReady", "Secret demo-api-key in namespace fleet holds no API key"),
        (
            [mqtt_cluster(), core(), secret("demo-api-key", {"key": b"a\nb"})],
            "ClusterNotReady",
            "Secret demo-api-key in namespace fleet holds no API key",
        ),
    ],
)
async def test_why_a_cluster_cannot_be_asked(objects: list[Manifest], reason: str, sentence: str) -> None:
    found = await find(*objects)
    assert isinstance(found, Absent)
    assert found.reason == reason
    assert sentence in found.message
    assert found.is_gone == (reason == "ClusterMissing")


async def test_a_cluster_that_is_being_deleted_is_gone() -> None:
    going = mqtt_cluster()
    going["metadata"]["deletionTimestamp"] = "now"
    found = await find(going, core(), KEY)
    assert isinstance(found, Absent)
    assert found.is_gone
