"""When a MqttCluster may be left alone for a while (passes.SETTLED_RESYNC_S): when all of it is as it should be, for
whatever may change that wakes a pass. Pure.

    what a pass looks at                                   what wakes the next one
    the MqttCluster; what it owns; ReplicaSets; pods of    kopf's watches (`handlers`)
        cores and of Redis
    Secrets, its own and those that the spec names;        the watch of their names (`name_watch`)
        the claims that the spec names
    how many connections nodes have, who is a donor        who asks them: `donors.reconcile`
    the time: certificates, the cluster's key              the plan for when it would be looked at again

All else isn't settled, and is looked at every passes.RESYNC_S: pods of replicants that aren't available; what waits for
something, or was refused; what somebody has to mend, such as a foreign object in the place of one of its own; files
that stay as long as the log's document has what they lack (`hot`), which is asked of a core in each pass.
"""

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.observe import Observed
from flockmq_operator.plan import Plan
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.secret_files import named
from flockmq_operator.status import reconciling


def is_settled(context: Context, observed: Observed, status: Manifest) -> bool:
    """`status`: as the pass reports it. (No watch tells of pods that are left out, and the Service waits for them.)"""
    condition = next(item for item in status["conditions"] if item["type"] == reconciling.TYPE)
    return condition["reason"] == reconciling.UP_TO_DATE and not observed.left_out and not context.kept_files


def is_empty(later: Plan) -> bool:
    """Whether there will be nothing to do, and nothing that somebody has to mend."""
    return not (later.changes or later.problems or later.waiting_for)


def named_objects(context: Context, wanted: list[Ref]) -> frozenset[Ref]:
    """The Secrets and claims that a pass looks at. `wanted`: what the MqttCluster should own."""
    renewed = (context.links, context.cluster_key, context.redis_certificates)
    secrets = {*renewed, *(file.secret for file in named(context))}
    claims = {part.claim_name for part in (context.spec.backup, context.spec.restore) if part}
    own = {name for name in wanted if name.kind == "Secret"}
    return frozenset(
        own | {Ref("Secret", name) for name in secrets} | {Ref("PersistentVolumeClaim", name) for name in claims}
    )
