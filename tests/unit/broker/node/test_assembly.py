"""A node put together: what keeps it from starting is said before anything is opened; what is opened in which order."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from flockmq.config import load
from flockmq.config.values import Secret
from flockmq.errors import ConfigError
from flockmq.node.assembly import Assembly
from flockmq.node.run import run_node


async def test_a_cluster_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    config = load.load(
        environment={
            "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "",
            "FLOCKMQ_REDIS__URL": "redis://127.0.0.1:1",
            "FLOCKMQ_NODE__DATA_DIR": str(tmp_path),
        }
    )
    cluster = msgspec.structs.replace(config.cluster, key=Secret("short"))
    with pytest.raises(ConfigError, match="the key must have at least"):
        await run_node(msgspec.structs.replace(config, cluster=cluster))


async def test_a_bootstrap_file_that_cant_be_used_is_refused_with_its_line(tmp_path: Path) -> None:
    users, file = tmp_path / "users.csv", tmp_path / "node.toml"
    users.write_text("user_id,password\njo,\n")
    file.write_text(
        f'[authentication]\nbootstrap_file = "{users}"\nbootstrap_type = "plain"\n'
        '[[authentication.chain]]\nmechanism = "password_based:built_in_database"\n'
        '[redis]\nurl = "redis://127.0.0.1:1"\n[listeners.tcp.default]\nbind = ""\n'
    )
    with pytest.raises(ConfigError, match=r"users\.csv: line 2: a user needs a password"):
        await run_node(load.load(file=file, environment={}))


async def test_a_core_knows_of_its_slots_before_it_is_a_member() -> None:
    """Else what comes for slots that it was given would be accepted, and be nowhere."""
    done: list[str] = []

    def part(*names: str) -> SimpleNamespace:
        async def happens(name: str) -> None:
            done.append(name)

        return SimpleNamespace(**{name.rpartition(".")[2]: partial(happens, name) for name in names})

    async def works() -> None: ...

    node: Any = SimpleNamespace(
        access=SimpleNamespace(auth=part("auth.start", "auth.stop"), watch=works),
        delivery=SimpleNamespace(stop=lambda: None),
        durable_host=part("durable_host.start", "durable_host.stop"),
        session_rpc=SimpleNamespace(start=lambda: done.append("session_rpc.start"), stop=works),
        reactor=SimpleNamespace(start=lambda loop: done.append("reactor.start"), stop=lambda: None),
        loop_watch=SimpleNamespace(run=works),
        system=SimpleNamespace(run=works),
        left=SimpleNamespace(delayed=SimpleNamespace(run=works), send_as_plugin=None),
        retaining=SimpleNamespace(watch_expired=works),
        shortage=SimpleNamespace(watch=works),
        quotas=SimpleNamespace(watch=works),
        sample_lag=works,
        watch_sessions=works,
        traffic=SimpleNamespace(run=works),
        rebalancing=SimpleNamespace(run=works),
        close_clients=works,
        plugin_hooks=SimpleNamespace(plugins=SimpleNamespace(start=lambda *_: None, stop=lambda: None)),
    )
    node.cluster = cluster = part("cluster.start", "cluster.join", "cluster.stop")
    rlog: Any = part("rlog.start", "rlog.stop")
    config: Any = SimpleNamespace(node=SimpleNamespace(name="core"), plugins=SimpleNamespace(settings={}))
    settings: Any = SimpleNamespace(look=lambda: done.append("settings.look"), watch=lambda _: works())
    async with Assembly(config, {}, node, cluster, rlog, asyncio.Event(), settings).running():
        assert done.index("rlog.start") < done.index("settings.look") < done.index("cluster.join")
        assert done.index("durable_host.start") < done.index("session_rpc.start") < done.index("cluster.join")
        assert done.index("cluster.join") < done.index("reactor.start")
