"""What MqttUsers ask of a cluster's management API."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flockmq_operator.management_api import ManagementApi, NodeRefuses, decoded, path_to, unless_missing
from flockmq_operator.spec import Amount, Rule, said
from flockmq_operator.users.password import Password
from flockmq_operator.users.quotas import Quotas, UserQuotas
from flockmq_operator.users.spec import UserRule


class SeenUser(NamedTuple):
    is_superuser: bool
    is_disabled: bool
    version: str
    """Another one whenever anything of the user changed; empty: an older node doesn't tell."""


class Seen(NamedTuple):
    """What the cluster has under a user name."""

    user: SeenUser | None
    rules: tuple[Rule, ...]
    quotas: Quotas


class _User(msgspec.Struct, frozen=True):
    is_superuser: bool
    is_disabled: bool = False


class _Rules(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...]


UNKNOWN = (404, 405)
"""What a node answers to a path that its release doesn't have."""


class UserApi(ManagementApi):
    """Each method raises NodeRefuses, NodeAway."""

    async def seen(self, name: str) -> Seen:
        return Seen(await self.user(name), await self.rules(name), await self.quotas(name))

    async def user(self, name: str) -> SeenUser | None:
        """None: there is no such user."""
        try:
            return await self._user("GET", path_to("users", name))
        except NodeRefuses as refusal:
            unless_missing(refusal)
            return None

    async def create(self, name: str, password: Password, *, superuser: bool, disabled: bool) -> SeenUser:
        body = {"user_id": name, "password": password.reveal(), "is_superuser": superuser, "is_disabled": disabled}
        return await self._user("POST", "/api/v1/users", body)

    async def change(self, name: str, password: Password | None, *, superuser: bool, disabled: bool) -> SeenUser:
        """`password` None: it stays."""
        body: dict[str, object] = {"is_superuser": superuser, "is_disabled": disabled}
        if password is not None:
            body["password"] = password.reveal()
        return await self._user("PUT", path_to("users", name), body)

    async def delete(self, name: str) -> None:
        """One that isn't there is fine; so it is with rules and quotas."""
        await self.delete_path(path_to("users", name))

    async def rules(self, name: str) -> tuple[Rule, ...]:
        try:
            answer, _ = await self.ask("GET", path_to("rules", "username", name))
        except NodeRefuses as refusal:
            unless_missing(refusal)
            return ()
        return decoded(answer, _Rules).rules

    async def put_rules(self, name: str, rules: Sequence[UserRule]) -> None:
        await self.ask("PUT", path_to("rules", "username", name), {"rules": [said(rule) for rule in rules]})

    async def delete_rules(self, name: str) -> None:
        await self.delete_path(path_to("rules", "username", name))

    async def quotas(self, name: str) -> Quotas:
        """Empty: the user has none of its own."""
        try:
            answer, _ = await self.ask("GET", path_to("quotas", name))
        except NodeRefuses as refusal:
            unless_missing(refusal)
            return {}
        told = decoded(answer, dict[str, Amount])
        return {key: told[key] for key in UserQuotas.__struct_fields__ if key in told}

    async def put_quotas(self, name: str, quotas: Quotas) -> None:
        try:
            await self.ask("PUT", path_to("quotas", name), quotas)
        except NodeRefuses as refusal:
            if refusal.status not in UNKNOWN:
                raise
            sentence = "quotas: its nodes are of a release that has none of single users: set a newer spec.image there"
            raise NodeRefuses(refusal.status, sentence) from None

    async def delete_quotas(self, name: str) -> None:
        await self.delete_path(path_to("quotas", name))

    async def _user(self, method: str, path: str, body: object = None) -> SeenUser:
        answer, version = await self.ask(method, path, body)
        user = decoded(answer, _User)
        return SeenUser(user.is_superuser, user.is_disabled, version)
