"""Who may do what at the Redis that the operator runs, as ACL files; passwords are passed in.

`default` is whoever administers it: probes, replication, Sentinel, `kubectl exec`. Nodes and the report have users of
their own: cores do all to the cluster's keys, but nothing to the server; replicants tail the log, and the report reads
events. At Sentinel, `default` (who nodes come as) only asks who is the primary.
"""

from typing import NamedTuple

SHARDS = ("cluster", "route", "retained", "auth")
CORE, REPLICANT, REPORT, SENTINEL_ADMIN = "core", "replicant", "report", "operator"

CONNECTING = "+ping +info +client|setinfo +client|setname"
CORE_RULES = f"~flockmq:* &flockmq:* +@all -@admin -@dangerous {CONNECTING} +role +wait +waitaof"
REPLICANT_RULES = f"{' '.join(f'~flockmq:{{{shard}}}:log' for shard in SHARDS)} +xread +xrange +xrevrange {CONNECTING}"
REPORT_RULES = f"~flockmq:events:* +exists +xinfo|stream +xrange +xrevrange {CONNECTING}"
SENTINEL_RULES = (
    "+auth +hello +ping +info +role +client|setinfo +client|setname +subscribe +psubscribe +unsubscribe +punsubscribe "
    "+sentinel|get-master-addr-by-name +sentinel|master +sentinel|masters +sentinel|replicas +sentinel|sentinels &*"
)


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
