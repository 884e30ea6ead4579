"""What has to be done in the cluster, so that it has a user as its MqttUser says. Pure."""

from typing import Literal

from flockmq_operator.spec import said
from flockmq_operator.users.api import Seen
from flockmq_operator.users.spec import UserSpec

Step = Literal["create", "change", "rules", "quotas"]
"""`change` sets the rights, and the password where there is one: so that it is known afterwards."""


def steps(spec: UserSpec, seen: Seen, *, has_password: bool, is_password_set: bool) -> list[Step]:
    """`has_password`: the Secret holds one; `is_password_set`: the user has it.

    Who gains rights gets its rules before, who loses them loses them first: at no time it may do more than before or
    after. Without its rules and quotas no user is made.
    """
    if seen.user is None and not has_password:
        return []
    account: list[Step] = []
    if seen.user is None:
        account = ["create"]
    else:
        is_right = (seen.user.is_superuser, seen.user.is_disabled) == (spec.superuser, not spec.enabled)
        if not is_right or (has_password and not is_password_set):
            account = ["change"]
    limits: list[Step] = []
    if [said(rule) for rule in seen.rules] != [said(rule) for rule in spec.rules]:
        limits.append("rules")
    if seen.quotas != spec.quotas.told():
        limits.append("quotas")
    is_let_in = seen.user is None or (seen.user.is_disabled and spec.enabled)
    return [*limits, *account] if is_let_in else [*account, *limits]
