"""Which nodes a broker of several processes has, with which settings, and how often one is started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from flockmq import bounds, workers
from flockmq.config.listener_settings import (
    ListenersSettings,
    SslListenerSettings,
    TcpListenerSettings,
    UnixListenerSettings,
)
from flockmq.config.schema import ClusterSettings, Config, ManagementSettings, NodeSettings, RedisSettings
from flockmq.config.values import Address, Secret
from flockmq.errors import ConfigError
from flockmq.management.view import NodePorts
from flockmq.node_processes import NodeFailed

CONFIG = Config(
    node=NodeSettings(name="box", data_dir=Path("/data")),
    listeners=ListenersSettings(
        tcp={"default": TcpListenerSettings(bind=Address("0.0.0.0", 0)), "off": TcpListenerSettings(bind=None)},
        ssl={"public": SslListenerSettings(bind=Address("::", 8883), certfile=Path("/c"), keyfile=Path("/k"))},
        unix={"default": UnixListenerSettings(bind=Path("/run/mqtt.sock"))},
    ),
    cluster=ClusterSettings(listen=Address("0.0.0.0", 4370)),
    management=ManagementSettings(listen=Address("127.0.0.1", 18083)),
)
PORTS = {"tcp:default": 31883, "ssl:public": 8883, "unix:default": 0}
CORE = NodePorts(mqtt=None, link=4370, management=18083)
SHARED = {"redis.url": "unix:///data/valkey/socket", "cluster.key": "secret"}


def test_the_core_has_the_brokers_name_and_folder_and_no_listener() -> None:
    plan = workers.core_plan(CONFIG, SHARED)
    assert (plan.name, plan.role) == ("box", "core")
    assert plan.settings == SHARED | {
        "role": "core",
        "node.name": "box",
        "node.data_dir": "/data",
        "cluster.listen": "0.0.0.0:4370",
        "management.listen": "127.0.0.1:18083",
        "management.readiness_of": "replicants",
        "listeners.tcp.default.bind": "",
        "listeners.ssl.public.bind": "",
        "listeners.unix.default.bind": "",
    }


def test_a_worker_listens_where_all_others_do() -> None:
    plan = workers.worker_plan(CONFIG, SHARED, 2, CORE, PORTS)
    assert (plan.name, plan.role) == ("box-2", "replicant")
    assert plan.settings == SHARED | {
        "role": "replicant",
        "node.name": "box-2",
        "node.data_dir": "/data/box-2",
        "cluster.listen": "0.0.0.0:0",
        "cluster.seeds": "127.0.0.1:4370",
        "management.listen": "127.0.0.1:18085",
        "listeners.tcp.default.bind": "0.0.0.0:31883",
        "listeners.tcp.default.reuseport": "true",
        "listeners.ssl.public.bind": "[::]:8883",
        "listeners.ssl.public.reuseport": "true",
        "listeners.unix.default.bind": "",
    }


def test_the_unix_socket_is_the_first_workers() -> None:
    assert "listeners.unix.default.bind" not in workers.worker_plan(CONFIG, SHARED, 1, CORE, PORTS).settings


def test_the_nodes_get_a_key_unless_one_is_configured() -> None:
    made = workers.shared_settings(CONFIG, None)
    assert list(made) == ["cluster.key"]
    assert len(made["cluster.key"]) == 64
    assert made != workers.shared_settings(CONFIG, None)
    for cluster in (ClusterSettings(key=Secret("k" * 32)), ClusterSettings(key_file=Path("/key"))):
        assert workers.shared_settings(Config(cluster=cluster), "unix:///socket") == {"redis.url": "unix:///socket"}


def test_only_a_single_broker_has_workers() -> None:
    workers.check(Config())
    for role in ("core", "replicant"):
        with pytest.raises(ConfigError, match=rf"--workers: a {role} is one process; leave --workers or the role out"):
            workers.check(Config(role=role))


@pytest.mark.parametrize(
    ("quota", "processors"), [("max 100000", 4), ("150000 100000", 2), ("20000 100000", 1), ("900000 100000", 4)]
)
def test_auto_is_as_many_as_the_container_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, processors: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert workers.processors(tmp_path) == 4
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{quota}\n")
    assert workers.processors(tmp_path) == processors


def test_a_node_that_ends_again_and_again_waits_longer_up_to_a_bound() -> None:
    waits = [workers.wait_s(tries) for tries in range(100)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (bounds.WORKER_RETRY_MIN_S, bounds.WORKER_RETRY_MAX_S)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_node_that_fails_at_the_start_ends_all_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    async def fails(*_: object) -> list[NodePorts]:
        raise NodeFailed("box wasn't ready within 60 s", 3, is_told=is_told)

    monkeypatch.setattr(workers._Broker, "start", fails)
    config = Config(node=NodeSettings(name="box", data_dir=Path("/data")), redis=RedisSettings(url="redis://elsewhere"))
    config = msgspec.structs.replace(
        config, listeners=ListenersSettings(tcp={"default": TcpListenerSettings(bind=Address("127.0.0.1", 0))})
    )
    running = workers.run(config, 2, [], lambda _: None, asyncio.Event())
    if is_told:
        assert await running == 3
    else:
        with pytest.raises(NodeFailed, match="wasn't ready"):
            await running
