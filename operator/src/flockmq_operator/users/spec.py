"""The MqttUser, decoded.

Invariant: what decodes here, the CRD's schema admits, and the reverse: `crds/mqttusers.yaml` is the reference for the
meaning, bounds and defaults of each field. Names are the CRD's, in snake case.
"""

from typing import Literal

from flockmq_operator.custom_object import CustomObject, decode_spec
from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import GROUP, Part, SecretKey
from flockmq_operator.users.quotas import UserQuotas

USER_KIND = "MqttUser"
USER_PLURAL = "mqttusers"
FINALIZER = f"{GROUP}/user"
"""On a MqttUser that owns the user in the cluster: it made it there, or adopted it. No other one touches it."""


class UserRule(Part, frozen=True):
    permit: Literal["allow", "deny"]
    action: Literal["publish", "subscribe", "all"] = "all"
    topics: tuple[str, ...] = ()
    qos: tuple[int, ...] = ()
    retain: bool | None = None
    clientid: str | None = None
    ipaddr: tuple[str, ...] = ()


class UserSpec(Part, frozen=True):
    cluster: str
    password_secret_ref: SecretKey
    username: str | None = None
    superuser: bool = False
    enabled: bool = True
    rules: tuple[UserRule, ...] = ()
    quotas: UserQuotas = UserQuotas()
    adopt: bool = False


class MqttUser(CustomObject, frozen=True):
    """A decoded MqttUser object."""

    spec: UserSpec

    @property
    def username(self) -> str:
        return self.spec.username or self.name

    @property
    def is_owner(self) -> bool:
        return self.has_finalizer(FINALIZER)

    @property
    def precedence(self) -> tuple[bool, str, str]:
        """Who has the user comes first, then the oldest; of one second by name."""
        return not self.is_owner, self.created, self.name


def decode_user(body: Manifest) -> MqttUser:
    """Decode a MqttUser as the API server returned it; raises SpecError naming the field."""
    return MqttUser(body, decode_spec(body, UserSpec))


def owners(users: list[MqttUser]) -> dict[str, MqttUser]:
    """User name → whose it is, of those that claim it."""
    found: dict[str, MqttUser] = {}
    for user in sorted(users, key=lambda user: user.precedence):
        found.setdefault(user.username, user)
    return found
