"""What a core takes from whom."""

from __future__ import annotations

import pytest

from flockmq.membership.link_requests import Refusal
from flockmq.membership.log_client import Append
from flockmq.membership.log_server import check_replicants
from flockmq.rlog.entry import Op, encode_purge, encode_registration, encode_transaction
from flockmq.rlog.schema import ALARMS, NODES, SLOTS, VERSIONS, Alarm, NodeInfo, RaisedVersion

ME = "replicant@00000001"


def appended(data: bytes, shard: str = "cluster") -> Append:
    return Append(shard, ME, 1, [data])


def written(op: Op) -> bytes:
    table, kind, owner, key, value = op
    return encode_transaction(ME, 1, [(table, kind, owner, [key], [value])])


def joining(role: str) -> bytes:
    return written(NODES.put(ME, NodeInfo("replicant", role, "10.0.0.7", 4370, 1883, "0")))


@pytest.mark.parametrize(
    "data",
    [
        joining("core"),
        joining("single"),
        written(SLOTS.put(7, ME)),
        written(SLOTS.delete(7)),
        written(VERSIONS.put("cluster", RaisedVersion(99))),
        encode_purge("core-0@00000001"),
    ],
)
def test_a_replicant_doesnt_write_what_cores_decide(data: bytes) -> None:
    with pytest.raises(Refusal, match="a replicant doesn't write what is cores' to write"):
        check_replicants(appended(data))


@pytest.mark.parametrize(
    "append",
    [
        appended(joining("replicant")),
        appended(written(NODES.delete(ME))),
        appended(written(ALARMS.put("redis-away", Alarm(1, "text")))),
        appended(encode_registration(ME)),
        appended(b"whatever", "route"),
    ],
)
def test_a_replicant_writes_what_is_its_own(append: Append) -> None:
    check_replicants(append)
