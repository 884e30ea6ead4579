"""The lock files hold what the projects ask for, agree with one another, and name no host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
DEV = "requirements-dev.txt"
LOCKS = (
    DEV,
    "requirements-demo.txt",
    "requirements-uv.txt",
    "requirements-s3.txt",
    "broker/requirements.txt",
    "broker/requirements-build.txt",
    "operator/requirements.txt",
    "analytics/requirements.txt",
)


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def asked(project: str, *extras: str) -> list[Requirement]:
    about = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]
    optional = about.get("optional-dependencies", {})
    return [Requirement(line) for line in (*about["dependencies"], *(d for extra in extras for d in optional[extra]))]


def group(name: str) -> list[Requirement]:
    found: list[Requirement] = []
    for entry in WORKSPACE[name]:
        found += group(entry["include-group"]) if isinstance(entry, dict) else [Requirement(entry)]
    return found


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        (DEV, group("dev") + asked("broker", "embedded") + asked("operator") + asked("analytics", "local")),
        ("requirements-demo.txt", group("build") + asked("broker", "embedded")),
        ("requirements-uv.txt", group("uv")),
        ("requirements-s3.txt", group("s3")),
        ("broker/requirements.txt", asked("broker", "embedded")),
        ("broker/requirements-build.txt", group("compile")),
        ("operator/requirements.txt", asked("operator")),
        ("analytics/requirements.txt", asked("analytics")),
    ],
)
def test_a_lock_pins_what_is_asked_for(lock: str, requirements: list[Requirement]) -> None:
    pinned = pins(lock)
    names = {requirement: re.sub(r"[-_.]+", "-", requirement.name).lower() for requirement in requirements}
    stale = [str(r) for r, name in names.items() if name not in pinned or not r.specifier.contains(pinned[name])]
    assert stale == [], "run make lock"


@pytest.mark.parametrize(
    "lock", [lock for lock in LOCKS if lock not in {DEV, "requirements-uv.txt", "requirements-s3.txt"}]
)
def test_a_part_uses_the_versions_that_are_tested(lock: str) -> None:
    tested = pins(DEV)
    assert {name: version for name, version in pins(lock).items() if tested.get(name) != version} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash_and_no_line_names_a_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


PARTS = ("broker", "operator", "analytics")


def test_the_images_are_built_on_one_base_by_its_digest() -> None:
    bases = set()
    for part in PARTS:
        text = (ROOT / f"Dockerfile.{part}").read_text()
        bases |= set(re.findall(r"^ARG PYTHON_IMAGE=(.*)$", text, re.MULTILINE))
        assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    (base,) = bases
    assert re.fullmatch(r"docker\.io/library/python:[\w.-]+@sha256:[0-9a-f]{64}", base)


def test_the_bill_of_materials_has_all_that_is_locked(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / ".ci/sbom", tmp_path], check=True, capture_output=True)
    for part in PARTS:
        bill = json.loads((tmp_path / f"flockmq-{part}.cdx.json").read_text())
        base, *others = bill["components"]
        assert base["name"] == "docker.io/library/python"
        packages = [each for each in others if "purl" in each]
        jars = {
            f"{each['hashes'][0]['content']}  ./{each['name']}-{each['version']}.jar"
            for each in others
            if each not in packages
        }
        sums = ROOT / part / "jars/SHA256SUMS"
        assert jars == (set(sums.read_text().splitlines()) if sums.exists() else set())
        assert {each["name"]: each["version"] for each in packages} == pins(f"{part}/requirements.txt")
        assert all(each["externalReferences"][0]["hashes"] for each in packages)
        assert len({each["bom-ref"] for each in bill["components"]}) == len(bill["components"])


def test_the_jars_are_of_the_hadoop_that_spark_has() -> None:
    """Of another version `s3a` doesn't work."""
    client = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    version = client.stem.rpartition("-")[2]
    assert f"<hadoop>{version}</hadoop>" in (ROOT / "analytics/jars/pom.xml").read_text()
    assert f"hadoop-aws-{version}.jar" in (ROOT / "analytics/jars/SHA256SUMS").read_text()
