"""Which pods are asked, and with which command."""

import pytest

from flockmq_operator.kube import Unreachable
from flockmq_operator.kubectl import ctl
from flockmq_operator.kubectl.execute import Ended
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources import secret_files
from unit.operator.kubectl.harness import part, waiting
from unit.operator.world import context


def asked(pods: list[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in ctl.asked_pods(pods)]


def test_ready_cores_are_asked_first_then_one_replicant_then_running_cores() -> None:
    starting = part("demo-core-0", "core")
    starting["status"]["conditions"] = []
    others = [part("demo-core-10", "core"), part("demo-core-2", "core")]
    replicants = [part(f"demo-replicant-{name}", "replicant") for name in "ba"]
    pods = [starting, waiting(part("demo-core-1", "core")), *others, *replicants, part("demo-redis-0", "redis")]
    assert asked(pods) == ["demo-core-2", "demo-core-10", "demo-replicant-a", "demo-core-0"]


def test_a_bounded_number_of_pods_is_asked() -> None:
    cores = [part(f"demo-core-{number}", "core") for number in range(9)]
    assert len(asked([*cores, part("demo-replicant-a", "replicant")])) == ctl.ASKED_MAX


def test_the_files_are_where_the_operator_mounts_them() -> None:
    tls = context({"management": {"tls": {"secretName": "m"}}})
    assert str(secret_files.api_key(tls)) == ctl.API_KEY
    assert str(secret_files.management_files(tls)["certfile"]) == ctl.CERTIFICATE


def test_a_management_port_with_tls_is_asked_with_its_certificate() -> None:
    words = ctl.command(part("demo-core-0", "core", tls=True), "alarms", "list")
    pinned = ["--url", "https://127.0.0.1:18083", "--pin", ctl.CERTIFICATE]
    assert words == ["flockmq", "ctl", "--json", *pinned, "alarms", "list"]
    words = ctl.command(part("demo-core-0", "core"), "evacuate", "stop", key=True)
    assert words == ["flockmq", "ctl", "--json", "--api-key-file", ctl.API_KEY, "evacuate", "stop"]


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended(1, "", "warning\nflockmq: it is refused\n"), "flockmq ctl alarms list: flockmq: it is refused$"),
        (Ended(137, "", ""), "flockmq ctl alarms list: it ended with 137$"),
        (Ended(0, "<html>", ""), "flockmq ctl alarms list printed no JSON: is it FlockMQ"),
        (Unreachable("no connection"), "^no connection$"),
    ],
)
async def test_what_does_not_work_is_a_sentence(ended: Ended | Exception, said: str) -> None:
    async def execute(*_: object) -> Ended:
        if isinstance(ended, Exception):
            raise ended
        return ended

    with pytest.raises(Failed, match=said):
        await ctl.ask(execute, part("demo-core-0", "core"), "alarms", "list")
