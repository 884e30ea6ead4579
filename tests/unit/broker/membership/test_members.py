from __future__ import annotations

from flockmq.default_callbacks import ignore
from flockmq.membership.members import Members
from flockmq.rlog.schema import NodeInfo


def node(role: str) -> NodeInfo:
    return NodeInfo("a", role, "a", 4370, 1883, "1.0")


def test_the_cores_among_the_members_are_those_of_now() -> None:
    members, core = Members(ignore, ignore), node("core")
    assert members.cores == ()
    members.put("a@1", core, None)
    members.put("b@1", node("replicant"), None)
    assert members.cores == ("a@1",)
    members.delete("a@1", core)
    assert members.cores == ()


def test_the_cores_of_a_table_that_was_replaced_are_the_new_one_s() -> None:
    members = Members(ignore, ignore)
    members.put("a@1", node("core"), None)
    assert members.cores == ("a@1",)
    fresh = members.fresh()
    fresh.put("b@1", node("core"), None)
    members.swap(fresh)
    assert members.cores == ("b@1",)
