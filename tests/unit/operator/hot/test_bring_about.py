"""An edit of spec.config that nodes can take while they run rolls no pod; the core is the broker's own REST API."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from flockmq.clock import SYSTEM
from flockmq.config.load import load_all
from flockmq.config.values import Secret
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.server import serve
from flockmq.management.view import Views
from flockmq.node.hot_settings import HotSettings
from flockmq.node.settings_admin import SettingsAdmin
from flockmq_operator import management_access
from flockmq_operator.hot.api import SettingsApi
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import Node
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.context import Context
from ports import free_port
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import ANYWHERE, token_bytes
from unit.operator.schema import SCHEMA, violations
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster

DEMO = Ref("MqttCluster", "demo")
KEY = (NAMESPACE, "demo")
DEBUG = '[log]\nlevel = "debug"\n'
PATHS = ("cores", "replicants")


async def none_answers(_: Context) -> list[Node] | None:
    return None


class Town:
    """Kubernetes, an operator whose passes a test makes, and what the cluster's log has of settings."""

    def __init__(self, config: str = "") -> None:
        self.world = World(mqtt_cluster({"config": config}))
        self.log = FakeLog()
        self.reconciler = Reconciler(self.world, SETTINGS, none_answers, Metrics())
        self.settings = SettingsAdmin(
            HotSettings(load_all(environment={}), self.log.as_rlog()), self.log.as_rlog(), self.log.may_write, SYSTEM
        )
        self._running = AsyncExitStack()

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.reconciler._pass(KEY)
            self.world.settle()
            for core in self.world.pods("core"):
                core["status"]["podIP"] = "10.0.0.7"

    async def edit(self, config: str, times: int = 1) -> None:
        body = self.world.objects[DEMO]
        body["spec"] = {**body["spec"], "config": config}
        body["metadata"]["generation"] += 1
        await self.look(times)

    async def answer(self, monkeypatch: pytest.MonkeyPatch, *, has_settings: bool = True) -> None:
        """A core answers from now on."""
        key = b64decode(self.world.objects[Ref("Secret", "demo-api-key")]["data"]["key"]).decode()
        keys = ApiKeys(self.log.as_rlog(), Secret(key), self.log.may_write, SYSTEM, token_bytes)
        audit = AuditLog("core-0", self.log.as_rlog(), self.log.may_write, SYSTEM, token_bytes)
        nobody: Any = None
        views = Views(*(nobody,) * len(Views._fields))._replace(samples=list, settings=self.settings)
        port = await self._running.enter_async_context(serve(views, ANYWHERE, nobody, nobody, keys, audit))
        place = f"http://127.0.0.1:{port}" + ("" if has_settings else "/of-before")
        monkeypatch.setattr(management_access, "url_of", lambda *_, **__: place)

    async def stop(self) -> None:
        await self.reconciler.stop()
        await self._running.aclose()

    def files(self) -> tuple[str, str]:
        """The ConfigMaps that pods of cores and of replicants are started with."""
        templates = [
            self.world.objects[name]["spec"]["template"]
            for name in (Ref("StatefulSet", "demo-core"), Ref("Deployment", "demo-replicant"))
        ]
        core, replicant = (
            next(volume["configMap"]["name"] for volume in template["spec"]["volumes"] if volume["name"] == "config")
            for template in templates
        )
        return core, replicant

    def document(self) -> Manifest:
        return self.settings.shown().document

    def status(self) -> Manifest:
        found: Manifest = self.world.objects[DEMO]["status"]
        return found

    def condition(self, kind: str) -> Manifest:
        return next(item for item in self.status()["conditions"] if item["type"] == kind)

    def told(self) -> list[str]:
        """The reasons of events since it was asked last."""
        told, self.world.told = self.world.told, []
        return [event["reason"] for event in told]


@pytest.fixture
async def town(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    made = Town("[quotas]\nmax_sessions = 100\n[node]\nmax_connections = 1000\n")
    await made.look(8)
    assert made.condition("Ready")["status"] == "True"
    made.told()
    yield made
    await made.stop()


async def test_another_value_and_a_new_key_roll_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    files = town.files()
    await town.edit(f"[quotas]\nmax_sessions = 5\n[node]\nmax_connections = 1000\n{DEBUG}")
    assert town.files() == files
    assert town.document() == {"log": {"level": "debug"}, "quotas": {"max_sessions": 5}}
    assert town.told() == ["SettingsChanged", "Updated", "Updated"], "and annotations of the two workloads"
    assert not [write for write in town.world.writes if write.startswith("delete Pod")]
    assert town.status()["settings"]["paths"] == ["log.level", "quotas.max_sessions"]
    for _ in range(3):
        await town.look()
    assert (town.files(), town.told(), town.settings.shown().revision) == (files, ["Ready"], 1)
    assert town.condition("Ready")["status"] == "True"
    assert town.status()["observedGeneration"] == 2


class Killed(BaseException):
    """The operator's process is gone."""


@pytest.mark.parametrize("config", [f"[quotas]\nmax_sessions = 50\n{DEBUG}", "[quotas]\nmax_sessions = 5\n"])
async def test_what_an_operator_told_before_it_was_killed_follows_the_spec_that_the_next_one_finds(
    town: Town, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """Nodes are told; and before the status says so the operator is killed, and the spec is as before."""
    await town.answer(monkeypatch)
    before = "[quotas]\nmax_sessions = 50\n[node]\nmax_connections = 1000\n"
    await town.edit(before, times=3)
    assert town.document() == {"quotas": {"max_sessions": 50}}
    change = SettingsApi.change

    async def change_and_die(api: SettingsApi, patch: Manifest) -> None:
        await change(api, patch)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(SettingsApi, "change", change_and_die)
        with pytest.raises(Killed):
            await town.edit(f"[node]\nmax_connections = 1000\n{config}")
    assert town.document() != {"quotas": {"max_sessions": 50}}
    town.reconciler = Reconciler(town.world, SETTINGS, none_answers, Metrics())
    await town.edit(before, times=3)
    assert town.document() == {"quotas": {"max_sessions": 50}}
    assert town.condition("Ready")["status"] == "True"
    assert town.status()["settings"]["paths"] == ["quotas.max_sessions"]


@pytest.mark.parametrize(
    "config",
    [
        "".join(f"[zones.z{number}]\nmax_inflight = 7\nmax_mqueue_len = 70\n" for number in range(513)),
        f"[zones.{'z' * 250}]\nmax_inflight = 7\n",
    ],
)
async def test_more_keys_than_the_status_can_have_roll_pods(
    town: Town, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """Kubernetes would refuse the status, in each pass, and forget what nodes were told."""
    monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{free_port()}")
    await town.edit(config.replace("7", "5"))
    core, _ = town.files()
    await town.edit(config)
    assert not list(violations(town.status(), SCHEMA["properties"]["status"], "status"))
    assert town.files()[0] != core, "replicants follow"


async def test_going_back_is_told_too(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    files, config = town.files(), town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config.replace("100\n", "5\n"))
    await town.edit(config)
    assert town.files() == files
    assert town.document() == {"quotas": {"max_sessions": 100}}


async def test_a_key_that_is_said_no_more_is_taken_out_of_the_document(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.answer(monkeypatch)
    files, config = town.files(), town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config + DEBUG)
    await town.edit(config)
    assert (town.files(), town.document(), "settings" in town.status()) == (files, {}, False)
    await town.edit(config.replace("[quotas]\nmax_sessions = 100\n", ""), 8)
    assert not set(files) & set(town.files()), "only the broker knows what holds without a key of the file"


async def test_what_an_admin_has_changed_stays(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    await town.settings.change({"flapping": {"enable": True}}, "jo", None)
    config = town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config + DEBUG)
    await town.settings.change({"log": {"level": "error"}}, "jo", None)
    await town.look(3)
    assert town.document() == {"flapping": {"enable": True}, "log": {"level": "error"}}
    await town.edit(config)
    assert town.document() == {"flapping": {"enable": True}}


async def test_what_is_lost_of_the_document_is_told_again(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + DEBUG)
    await town.settings.restore(0, "jo", None)
    await town.look()
    assert town.document() == {"log": {"level": "debug"}}


async def test_a_change_of_more_rolls_pods_and_the_document_follows(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.answer(monkeypatch)
    files, config = town.files(), town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config + DEBUG)
    await town.edit(f'{config}[log]\nlevel = "error"\n[sys_topics]\nsys_msg_interval = 5\n', 8)
    assert not set(files) & set(town.files())
    assert town.document() == {"log": {"level": "error"}}, "it counts more than the new files"
    await town.edit(f"{config}[sys_topics]\nsys_msg_interval = 5\n", 8)
    assert town.document() == {}


async def test_where_nobody_can_be_told_pods_are_rolled(town: Town) -> None:
    files = town.files()
    for core in town.world.pods("core"):
        del core["status"]["podIP"]
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + DEBUG, 8)
    assert not set(files) & set(town.files())
    assert (town.document(), "settings" in town.status()) == ({}, False)


async def test_so_they_are_where_nodes_are_of_an_earlier_release(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch, has_settings=False)
    files = town.files()
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + DEBUG, 8)
    assert not set(files) & set(town.files())
    assert "settings" not in town.status()


async def test_what_was_told_once_stays_while_nobody_answers(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    files, config = town.files(), town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config + DEBUG)
    monkeypatch.setattr(management_access, "url_of", lambda *_, **__: "http://127.0.0.1:1")
    await town.look(3)
    assert town.files() == files


async def test_what_nodes_may_not_have_heard_is_told_until_it_is_sure(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.answer(monkeypatch)
    town.log.version = 1
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + DEBUG)
    assert town.condition("Reconciling")["message"].startswith("waiting for nodes to take log.level of spec.config: ")
    town.log.version = 2
    await town.look(8)
    assert town.document() == {"log": {"level": "debug"}}
    assert town.condition("Ready")["status"] == "True"
    assert town.condition("Reconciling")["status"] == "False"


async def test_while_spec_config_is_wrong_nothing_is_told(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.answer(monkeypatch)
    files = town.files()
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + DEBUG)
    before = town.status()["settings"]
    await town.edit("x =", 3)
    assert (town.files(), town.document(), town.status()["settings"]) == (files, {"log": {"level": "debug"}}, before)


async def test_a_value_that_no_node_takes_is_rolled_out_and_said_there(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.answer(monkeypatch)
    files = town.files()
    await town.edit(town.world.objects[DEMO]["spec"]["config"] + '[log]\nlevel = "loud"\n', 2)
    assert town.files() != files
    assert town.document() == {}


async def test_a_cluster_that_hibernates_keeps_its_files_and_waits_for_nobody(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.answer(monkeypatch)
    files, config = town.files(), town.world.objects[DEMO]["spec"]["config"]
    await town.edit(config + DEBUG)
    for name in [ref for ref in town.world.objects if ref.kind == "Pod"]:
        del town.world.objects[name]
    town.world.objects[DEMO]["spec"]["hibernate"] = True
    await town.reconciler._pass(KEY)
    assert town.files() == files
    body = town.world.objects[DEMO]
    body["spec"]["config"] = config.replace("100\n", "5\n") + DEBUG
    await town.reconciler._pass(KEY)
    assert "nodes to take" not in town.condition("Reconciling")["message"]
    body["spec"]["hibernate"] = False
    await town.look(8)
    assert town.document() == {"log": {"level": "debug"}, "quotas": {"max_sessions": 5}}, "told when it has pods again"
