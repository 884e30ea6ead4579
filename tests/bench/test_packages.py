"""What can't be installed is told in one line, without a registry's address; what a broker prints tells its version."""

from __future__ import annotations

from pathlib import Path

import pytest
from flockbench.brokers import Launch, Site, free_site, started
from flockbench.errors import Failed, Missing
from flockbench.machine import two_cores
from flockbench.packages import step, version


def script(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "script").write_text(text)
    return ["sh", str(tmp_path / "script")]


def test_a_step_that_fails_says_what_went_wrong(tmp_path: Path) -> None:
    failing = script(tmp_path, "echo working; echo 'error: no crate at https://registry.example/x' >&2; exit 3")

    with pytest.raises(Missing, match=r"failed: error: no crate at \(address\)$"):
        step(failing)


def test_a_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(Missing, match="there is no `no-such-tool` on this machine"):
        step(["no-such-tool", "install"])


@pytest.mark.parametrize("said", ["mosquitto version 2.0.11", "nats-server: v2.15.2", "3.1 of today"])
def test_a_version_is_the_first_number_with_dots(tmp_path: Path, said: str) -> None:
    assert version(script(tmp_path, f"echo '{said}' >&2; exit 3")) in said


def test_a_command_without_a_version_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="tells no version"):
        version(script(tmp_path, "echo none"))


def site(tmp_path: Path) -> Site:
    return free_site(tmp_path / "certificate", tmp_path / "key")


def test_the_ports_of_a_site_are_all_different(tmp_path: Path) -> None:
    it = site(tmp_path)

    assert len({it.mqtt, it.mqtt + 1, it.tls, it.websocket, *it.others}) == 4 + len(it.others)


def test_a_broker_that_ends_at_once_is_failed_with_its_last_words(tmp_path: Path) -> None:
    launch = Launch(("sh", "start"), {"start": "echo first; echo no such option; exit 2"})

    with (
        pytest.raises(Failed, match="ended at once with status 2: no such option"),
        started(lambda _: launch, site(tmp_path), two_cores()[0]),
    ):
        pass
