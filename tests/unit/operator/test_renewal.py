"""Certificates are renewed before they expire, and nothing rolls."""

import json
from datetime import timedelta

import pytest

from flockmq_operator.manifest import Ref
from flockmq_operator.plan import Plan
from unit.operator.test_plan import CORES, converge, reasons, running, step
from unit.operator.world import context


class TestRedisTls:
    PASSWORDS, CERTIFICATES = Ref("Secret", "demo-redis"), Ref("Secret", "demo-redis-tls")

    @pytest.mark.parametrize("replicas", [1, 3])
    async def test_what_was_made_in_the_clear_stays_so_and_nothing_rolls(self, replicas: int) -> None:
        world = await running({"redis": {"replicas": replicas, "tls": False}})
        assert self.CERTIFICATES not in world.objects
        assert await world.plan(context({"redis": {"replicas": replicas}})) == Plan()
        plan = await world.plan(context({"redis": {"replicas": replicas}, "update": "Automatic"}))
        assert not plan.changes

    async def test_what_is_new_speaks_it_and_goes_on(self) -> None:
        world = await running()
        assert world.objects[self.CERTIFICATES]["data"].keys() == {"ca.crt", "ca.key", "redis.crt", "redis.key"}
        assert await world.plan(context({"redis": {"tls": True}})) == Plan()

    @pytest.mark.parametrize(("made", "said"), [(None, False), (True, False), (False, True)])
    async def test_it_cannot_change(self, made: bool | None, said: bool) -> None:
        world = await running({"redis": {} if made is None else {"tls": made}})
        plan = await world.plan(context({"redis": {"tls": said}}))
        assert not plan.changes
        assert plan.problems
        assert plan.problems[0].reason == "RedisTlsFixed"
        assert f"spec.redis.tls: {str(said).lower()}" in plan.problems[0].message

    async def test_certificates_that_were_deleted_are_made_anew(self) -> None:
        world = await running()
        before = world.objects.pop(self.CERTIFICATES)["data"]
        await converge(world, context())
        assert world.objects[self.CERTIFICATES]["data"]["ca.crt"] != before["ca.crt"]

    async def test_what_cannot_be_read_is_a_problem(self) -> None:
        world = await running()
        world.objects[self.CERTIFICATES]["data"]["redis.crt"] = ""
        plan = await world.plan(context())
        assert plan.problems
        assert plan.problems[0].message.startswith("Secret demo-redis-tls in namespace fleet: redis.crt isn't PEM")


class TestLinkCertificates:
    LINKS = Ref("Secret", "demo-links")

    async def test_they_are_renewed_before_they_expire_and_nothing_rolls(self) -> None:
        world = await running()
        before = world.objects[self.LINKS]["data"]
        world.now += timedelta(days=59)
        assert await world.plan(context()) == Plan()
        world.now += timedelta(days=1)
        world.writes.clear()
        plan = await step(world, context())
        assert reasons(plan) == ["CertificatesRenewed", "CertificatesRenewed"]
        assert world.writes == ["apply Secret demo-links", "apply Secret demo-redis-tls"]
        after = world.objects[self.LINKS]["data"]
        assert after["core.crt"] != before["core.crt"]
        assert after["ca.crt"] == before["ca.crt"]
        assert await world.plan(context()) == Plan()

    async def test_what_was_deleted_is_made_anew(self) -> None:
        world = await running()
        before = world.objects.pop(self.LINKS)["data"]
        await converge(world, context())
        assert world.objects[self.LINKS]["data"]["ca.crt"] != before["ca.crt"]

    async def test_what_cannot_be_read_is_a_problem(self) -> None:
        world = await running()
        world.objects[self.LINKS]["data"]["core.crt"] = ""
        plan = await world.plan(context())
        assert not plan.changes
        assert plan.problems
        assert plan.problems[0].message.startswith("Secret demo-links in namespace fleet: core.crt isn't PEM")

    async def test_what_says_no_role_stays_as_long_as_nodes_show_it(self) -> None:
        world = await running()
        links = world.objects[self.LINKS]
        made = {name: content for name, content in links["data"].items() if name.startswith("ca.")}
        links["data"] = made | {f"tls.{kind}": links["data"][f"core.{kind}"] for kind in ("crt", "key")}
        earlier = json.dumps(world.objects[CORES]).replace("core.crt", "tls.crt").replace("core.key", "tls.key")
        live = world.objects.pop(CORES)
        world.put(json.loads(earlier))
        await converge(world, context())
        assert {"tls.crt", "core.crt", "replicant.crt"} <= world.objects[self.LINKS]["data"].keys()
        world.put(live)
        await converge(world, context())
        assert world.objects[self.LINKS]["data"]["tls.crt"] == ""
        world.now += timedelta(days=1)
        await converge(world, context())
        assert "tls.crt" not in world.objects[self.LINKS]["data"]

    async def test_the_authoritys_key_is_mounted_nowhere(self) -> None:
        world = await running()
        assert "ca.key" in world.objects[self.LINKS]["data"]
        assert "ca.key" not in json.dumps([item for name, item in world.objects.items() if name.kind != "Secret"])
