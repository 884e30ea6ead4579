"""The quotas of a MqttUser, as its spec says them and as the broker tells them. Pure.

A MqttUser without quotas leaves its user to those of the cluster, as one without rules leaves it to the cluster's.
"""

import re

from flockmq_operator.spec import Amount, Part

Quotas = dict[str, Amount]
"""By the broker's keys, such as `max_queued_bytes`: a number, in bytes where it is a size, or "infinity"."""

UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)")


class UserQuotas(Part, frozen=True):
    max_sessions: Amount | None = None
    max_queued_bytes: Amount | None = None
    max_subscriptions: Amount | None = None
    max_subscription_bytes: Amount | None = None
    max_retained_bytes: Amount | None = None

    def told(self) -> Quotas:
        """Those that the spec says, as the broker tells them when it has them."""
        said = {key: getattr(self, key) for key in UserQuotas.__struct_fields__}
        return {key: _number(amount) for key, amount in said.items() if amount is not None}


def _number(amount: Amount) -> Amount:
    """A size such as "1MB" in bytes; anything else as it is, for the broker to refuse."""
    found = SIZE.fullmatch(amount.lower()) if isinstance(amount, str) else None
    if found is None or found[2] not in UNITS:
        return amount
    size_bytes = float(found[1]) * UNITS[found[2]]
    return int(size_bytes) if size_bytes.is_integer() else amount
