"""What becomes of the Secrets that are renewed: the certificates, and the cluster's key. Pure.

Nothing else keeps them from it: each is renewed for itself, whatever problems there are with other parts.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from flockmq_operator.certificates import WITHOUT_ROLE, Step, Unreadable, next_step, of_links, of_redis
from flockmq_operator.cluster_key import next_key_step
from flockmq_operator.events import Event
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.observe import Observed
from flockmq_operator.problems import Problem, mounted, unreadable_certificates, unreadable_key
from flockmq_operator.resources.context import Context


class Renewal(NamedTuple):
    steps: dict[Ref, Step]
    problems: list[Problem]


def next_steps(context: Context, observed: Observed, desired: list[Manifest], now: datetime) -> Renewal:
    steps: dict[str, Step | None] = {}
    problems: list[Problem] = []
    without_role = any(shows_no_role(context, pod) for pod in nodes_there(context, observed))
    try:
        steps[context.links] = next_step(observed.links, of_links(context.name), now, without_role=without_role)
    except Unreadable as error:
        problems.append(unreadable_certificates(context, context.links, error, desired))
    if context.redis_tls:
        name = context.redis_certificates
        try:
            steps[name] = next_step(observed.redis_certificates, of_redis(context.name), now)
        except Unreadable as error:
            problems.append(unreadable_certificates(context, name, error, desired))
    try:
        steps[context.cluster_key] = next_key_step(observed.cluster_key, context.spec.cluster_key_rotation, now)
    except Unreadable as error:
        problems.append(unreadable_key(context, error, desired))
    return Renewal({Ref("Secret", name): step for name, step in steps.items() if step}, problems)


def describe_step(context: Context, secret: Ref, step: Step) -> Event:
    is_key = secret.name == context.cluster_key
    return Event("Normal", "ClusterKeyRotated" if is_key else "CertificatesRenewed", step.sentence, (secret,))


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """A Secret's data."""
    return {name: b64encode(content).decode() for name, content in files.items()}


def nodes_there(context: Context, observed: Observed) -> Iterator[Manifest]:
    """The PodSpecs of nodes that are, or are to be."""
    for name in (Ref("StatefulSet", context.core), Ref("Deployment", context.replicant)):
        if live := observed.objects.get(name):
            yield live["spec"]["template"]["spec"]
    for pod in (*observed.core_pods, *observed.replicant_pods):
        yield pod["spec"]


def shows_no_role(context: Context, pod: Manifest) -> bool:
    """Whether an earlier operator gave it the certificate that says no role."""
    links = [secret for secret in mounted(pod) if secret["name"] == context.links]
    return any(item["key"] == f"{WITHOUT_ROLE}.crt" for secret in links for item in secret.get("items") or ())
