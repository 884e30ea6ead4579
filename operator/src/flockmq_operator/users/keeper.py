"""What is done for one MqttUser: its user is made, adopted, changed or removed in the cluster.

Only a MqttUser that has the finalizer owns the user in the cluster: it gets it before the user is made or adopted, and
loses it when the user is removed. So a user that no MqttUser owns is never touched, whenever an operator dies; nor does
a MqttUser stay whose cluster is gone.
"""

import logging

from flockmq_operator.events import Event
from flockmq_operator.finalizer import with_finalizer, without_finalizer
from flockmq_operator.kube import Kube
from flockmq_operator.management_access import NOT_READY, Absent, refused_key
from flockmq_operator.management_api import NodeAway, NodeRefuses
from flockmq_operator.passes import Key
from flockmq_operator.users.api import Seen, SeenUser, UserApi
from flockmq_operator.users.password import Applied, Password, Unusable, applied, read_applied, read_password
from flockmq_operator.users.spec import FINALIZER, MqttUser, owners
from flockmq_operator.users.status import Verdict
from flockmq_operator.users.steps import Step, steps

log = logging.getLogger(__name__)

TOLD: dict[Step, str] = {"create": "the user", "change": "password and rights", "rules": "rules", "quotas": "quotas"}


class Keeper:
    """Of the MqttUsers `users` of the MqttCluster `key`, in one pass."""

    def __init__(self, kube: Kube, key: Key, api_key: str, api: UserApi, users: list[MqttUser]) -> None:
        self._kube = kube
        self._namespace, self._cluster = key
        self._api_key = api_key
        self._api = api
        self._owners = owners(users)
        self.seen: dict[str, Seen] = {}
        """What the cluster had before anything was done, by user name."""

    async def keep(self, user: MqttUser) -> Verdict | None:
        """None: it is gone, or goes by itself."""
        try:
            if not user.is_deleted:
                return await self._bring_about(user)
            await self._remove(user)
            return None
        except (NodeAway, NodeRefuses) as error:
            return self._failed(user, error)

    async def _remove(self, user: MqttUser) -> None:
        """The user first: without its rules it might do more."""
        if not user.is_owner:
            return
        await self._api.delete(user.username)
        await self._api.delete_rules(user.username)
        await self._api.delete_quotas(user.username)
        await without_finalizer(self._kube, user.body, FINALIZER)
        log.info("%s/%s: removed user %s of %s", self._namespace, user.name, user.username, self._cluster)

    async def _bring_about(self, user: MqttUser) -> Verdict:
        owner = self._owners[user.username]
        if owner.name != user.name:
            sentence = f"user {user.username} of MqttCluster {self._cluster} is that of MqttUser {owner.name}"
            return Verdict(False, "NameClaimed", f"{sentence}, which came first: delete one of the two")
        reference = user.spec.password_secret_ref
        secret = await self._kube.get("Secret", self._namespace, reference.name)
        password = read_password(secret, reference, self._namespace)
        name = user.username
        seen = self.seen[name] = await self._api.seen(name)
        if user.is_owner:
            return await self._carry_out(user, password, seen, begins=False)
        if seen.user is not None and not user.spec.adopt:
            sentence = f"MqttCluster {self._cluster} has a user {user.username} that no MqttUser made"
            return Verdict(
                False, "UserExists", f"{sentence}: remove it there, set another username, or spec.adopt: true"
            )
        if isinstance(password, Unusable):
            return Verdict(False, *password)
        owning = MqttUser(await with_finalizer(self._kube, user.body, FINALIZER), user.spec)
        return await self._carry_out(owning, password, seen, begins=True)

    async def _carry_out(self, user: MqttUser, given: Password | Unusable, seen: Seen, *, begins: bool) -> Verdict:
        """`begins`: it owns the user from now on. What was done before a step failed is remembered."""
        password = given if isinstance(given, Password) else None
        known = read_applied(user.status)
        wanted = self._applied(password, seen.user) if password else known
        is_same_secret = wanted.secret == known.secret
        todo = steps(user.spec, seen, has_password=password is not None, is_password_set=wanted == known)
        done: list[Step] = []
        failure: Verdict | None = None
        try:
            for step in todo:
                changed = await self._do(step, user, password, begins=begins)
                done.append(step)
                if changed and password:
                    known = self._applied(password, changed)
        except (NodeAway, NodeRefuses) as error:
            failure = self._failed(user, error)
        verdict = failure or self._right(user, given)
        event = self._event(user, seen, done, begins=begins, is_same_secret=is_same_secret) if done else None
        return verdict._replace(applied=str(known) if known.secret else "", event=event)

    async def _do(self, step: Step, user: MqttUser, password: Password | None, *, begins: bool) -> SeenUser | None:
        name, spec = user.username, user.spec
        if step == "rules":
            if spec.rules:
                await self._api.put_rules(name, spec.rules)
            else:
                await self._api.delete_rules(name)
            return None
        if step == "quotas":
            if quotas := spec.quotas.told():
                await self._api.put_quotas(name, quotas)
            else:
                await self._api.delete_quotas(name)
            return None
        if step == "change":
            return await self._api.change(name, password, superuser=spec.superuser, disabled=not spec.enabled)
        assert password, "without one none is made"
        try:
            return await self._api.create(name, password, superuser=spec.superuser, disabled=not spec.enabled)
        except NodeRefuses as refusal:
            if refusal.status == 409 and await self._api.user(name) is not None:
                if begins:
                    await without_finalizer(self._kube, user.body, FINALIZER)
                raise NodeAway(f"somebody else made user {name} in MqttCluster {self._cluster} just now") from None
            raise

    def _applied(self, password: Password, row: SeenUser | None) -> Applied:
        return applied(self._api_key, password.version, row.version if row else "")

    def _right(self, user: MqttUser, given: Password | Unusable) -> Verdict:
        if isinstance(given, Unusable):
            return Verdict(False, *given)
        can = "" if user.spec.enabled else ", and can't log in"
        return Verdict(True, "Applied", f"user {user.username} is in MqttCluster {self._cluster}{can}")

    def _failed(self, user: MqttUser, error: NodeAway | NodeRefuses) -> Verdict:
        if isinstance(error, NodeAway):
            return Verdict(False, NOT_READY, f"{error}{until_removed(user)}")
        if error.status in (401, 403):
            return Verdict(False, "KeyRefused", f"{refused_key(self._cluster, error)}{until_removed(user)}")
        sentence = f"MqttCluster {self._cluster} refuses user {user.username}: {error}"
        return Verdict(False, "Refused", f"{sentence}{until_removed(user)}")

    def _event(self, user: MqttUser, seen: Seen, done: list[Step], *, begins: bool, is_same_secret: bool) -> Event:
        what = f"user {user.username} of MqttCluster {self._cluster}"
        if begins:
            made = seen.user is None
            return Event("Normal", "Created" if made else "Adopted", f"{'Created' if made else 'Adopted'} {what}")
        changed = " and ".join(TOLD[step] for step in done)
        is_same = is_same_secret and user.status.get("observedGeneration") == user.body["metadata"]["generation"]
        if is_same:
            return Event("Normal", "Mended", f"{what} wasn't as this MqttUser says: set {changed} again")
        return Event("Normal", "Updated", f"Set {changed} of {what}")


async def without_cluster(kube: Kube, user: MqttUser, absent: Absent) -> Verdict | None:
    """What is left to do while the cluster can't be asked, or is gone."""
    if user.is_deleted:
        if not user.is_owner:
            return None
        if absent.is_gone:
            await without_finalizer(kube, user.body, FINALIZER)
            return None
    return Verdict(False, absent.reason, f"{absent.message}{until_removed(user)}")


def until_removed(user: MqttUser) -> str:
    """What to know while its user can't be removed; empty: it isn't deleted."""
    if not user.is_deleted:
        return ""
    patch = f'kubectl patch mqttuser {user.name} --type=merge --patch \'{{"metadata":{{"finalizers":null}}}}\''
    return f"; it is deleted when user {user.username} has been removed there, or, leaving the user, by: {patch}"
