"""Who may do what at the Redis that the operator runs, as ACL files; passwords are passed in.

`default` is whoever administers it: probes, replication, Sentinel, `kubectl exec`. Nodes and the report have users of
their own: cores do all to the cluster's keys, but nothing to the server; replicants tail the log, and the report reads
events and says which of them are stored (docs/redis.md). At Sentinel, `default` (who nodes and the report come as)
only asks who is the primary.
"""

from typing import NamedTuple

SHARDS = ("cluster", "route", "retained", "auth")
CORE, REPLICANT, REPORT, SENTINEL_ADMIN = "core", "replicant", "report", "operator"

LOGS = " ".join(f"%R~flockmq:{{{shard}}}:log" for shard in SHARDS)
CORE_RULES = "~flockmq:* +@all -@admin -@dangerous +info"
REPLICANT_RULES = f"{LOGS} +xread +xrange +xrevrange +ping +info"
REPORT_RULES = "%R~flockmq:events:* ~flockmq:events:committed +exists +xinfo|stream +xrange +xrevrange +hset +info"
SENTINEL_RULES = "+ping +sentinel|get-master-addr-by-name"


class Passwords(NamedTuple):
    admin: str
    core: str
    replicant: str
    report: str
    sentinel: str


def redis_acl(passwords: Passwords) -> str:
    """Redis' aclfile."""
    users = (
        ("default", passwords.admin, "~* &* +@all"),
        (CORE, passwords.core, CORE_RULES),
        (REPLICANT, passwords.replicant, REPLICANT_RULES),
        (REPORT, passwords.report, REPORT_RULES),
    )
    return "".join(f"user {name} reset on >{password} {rules}\n" for name, password, rules in users)


def sentinel_acl(passwords: Passwords) -> str:
    """The Sentinels' aclfile."""
    return (
        f"user default reset on >{passwords.sentinel} {SENTINEL_RULES}\n"
        f"user {SENTINEL_ADMIN} reset on >{passwords.admin} ~* &* +@all\n"
    )


def redis_conf(passwords: Passwords) -> str:
    """What Redis includes: as whom it is a replica, and who may come."""
    return f"masteruser default\nmasterauth {passwords.admin}\n"


def sentinel_conf(passwords: Passwords) -> str:
    """The like of Sentinel: as whom it comes to other Sentinels."""
    return f"sentinel sentinel-user {SENTINEL_ADMIN}\nsentinel sentinel-pass {passwords.admin}\n"
