"""Whether the Redis that the operator runs speaks TLS: as it was made. Pure.

It never changes, for nodes that run would lose it: what was made before operators knew TLS stays in the clear, and what
is new speaks it, unless the spec says otherwise. The Secret with the passwords, which is made once, remembers.
"""

from msgspec.structs import replace

from flockmq_operator.manifest import Ref, annotation
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import REDIS_TLS


def as_made(context: Context, observed: Observed) -> Context:
    """With `spec.redis.tls` as it is."""
    made = made_with_tls(context, observed)
    redis = replace(context.spec.redis, tls=context.redis_tls if made is None else made)
    return replace(context, cluster=replace(context.cluster, spec=replace(context.spec, redis=redis)))


def made_with_tls(context: Context, observed: Observed) -> bool | None:
    """None: it isn't made yet."""
    secret = observed.objects.get(Ref("Secret", context.redis))
    return None if secret is None else annotation(secret, REDIS_TLS) is not None


def contradiction(context: Context, observed: Observed) -> str | None:
    """What is wrong with the spec, and how to mend it."""
    made, said = made_with_tls(context, observed), context.spec.redis.tls
    if made is None or said is None or said == made:
        return None
    how = "to speak TLS" if made else "without TLS"
    return (
        f"spec.redis.tls: {str(said).lower()}: the Redis of this cluster was made {how}, and its nodes would lose it "
        "if that changed: remove spec.redis.tls, or make a second MqttCluster"
    )
