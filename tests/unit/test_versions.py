"""One version, `flockmq.__version__`: whatever names it elsewhere says the same, and images have one name each."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml

from flockmq import __version__

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("broker", "operator", "analytics")
IMAGES: Final = {f"flockmq-{part}:{__version__}" for part in PARTS}
NAMED: Final = re.compile(r"\bflockmq-(?:broker|operator|analytics):[\w.-]+")


def text(path: str) -> str:
    return (ROOT / path).read_text()


def made(target: str, **variables: str) -> str:
    """What `make TARGET` would do."""
    given = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(["make", "-n", target, *given], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("project", ["operator", "analytics"])
def test_the_parts_have_the_brokers_version(project: str) -> None:
    assert tomllib.loads(text(f"{project}/pyproject.toml"))["project"]["version"] == __version__


def test_the_chart_has_it() -> None:
    chart = yaml.safe_load(text("charts/flockmq/Chart.yaml"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_chart_says_it_once() -> None:
    """Its own images get their tag from appVersion."""
    images = yaml.safe_load(text("charts/flockmq/values.yaml"))["images"]
    assert {name: images[name] for name in PARTS} == dict.fromkeys(PARTS, "")
    assert __version__ not in text("charts/flockmq/templates/operator.yaml")


def test_the_plain_manifest_names_the_images_that_make_builds() -> None:
    manifest = text("manifests/install.yaml")
    assert set(NAMED.findall(manifest)) == IMAGES
    assert set(re.findall(r'app\.kubernetes\.io/version: "(.*)"', manifest)) == {__version__}
    for target in ("images", "kind-load"):
        script = made(target, CONTAINERS="docker")
        (tag,) = set(re.findall(r"flockmq-\$part:(\S+?)[ ;]", script))
        (parts,) = set(re.findall(r"for part in (.*?);", script))
        assert {f"flockmq-{part}:{tag}" for part in parts.split()} == IMAGES


@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))], ids=lambda p: p.name)
def test_documents_name_images_of_this_version(path: Path) -> None:
    assert set(NAMED.findall(path.read_text())) <= IMAGES


def test_the_changelog_begins_with_it() -> None:
    first = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert first is not None
    assert first[1] == __version__
