"""A pass over the MqttUsers of one MqttCluster: have its users made what they say (`keeper`), say what came of it.

One MqttUser that fails keeps no other one back. A pass that failed for one is repeated soon.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from flockmq_operator.kube import Kube
from flockmq_operator.management_access import NOT_READY, Absent, find_access
from flockmq_operator.management_api import CONNECTIONS_MAX, connected
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.passes import RESYNC_S, Done, Key, Passes, settled_resync_s
from flockmq_operator.report import report
from flockmq_operator.settings import Settings
from flockmq_operator.spec import SpecError
from flockmq_operator.users.api import UserApi
from flockmq_operator.users.keeper import Keeper, without_cluster
from flockmq_operator.users.look import Right, is_still
from flockmq_operator.users.spec import USER_KIND, MqttUser, decode_user
from flockmq_operator.users.status import Verdict, make_user_status, user_events

WAITING_RESYNC_S = 10.0
"""The longest until a cluster that wasn't ready is looked at again."""
GATHER_MAX_S = 1.0
"""The longest that reasons for a pass are gathered: a new password is awaited."""


class UserReconciler:
    def __init__(self, kube: Kube, settings: Settings, metrics: Metrics) -> None:
        self._kube = kube
        self._settings = settings
        self._metrics = metrics
        self._secrets: dict[Key, frozenset[str]] = {}
        """The Secrets that the MqttUsers of a MqttCluster name."""
        self._right: dict[Key, Right] = {}
        """Of those of which all was as their MqttUsers say, and of which nothing was told since."""
        self._passes = Passes("the MqttUsers of", self._pass, self._forget, metrics, GATHER_MAX_S)
        self._looks = Passes("the users in", self._look, lambda _: None, metrics, GATHER_MAX_S)

    def wake(self, namespace: str, cluster: str) -> None:
        """There is a reason to look at the MqttUsers of this MqttCluster."""
        self._wake((namespace, cluster))

    def wake_all(self, namespace: str | None) -> None:
        """What is watched may have changed untold; `namespace` None: in all."""
        for key in self._passes.busy_with():
            if namespace in (None, key[0]):
                self._wake(key)

    def cluster_changed(self, namespace: str, cluster: str) -> None:
        if (namespace, cluster) in self._passes.busy_with():
            self._wake((namespace, cluster))

    def named_changed(self, namespace: str, what: Ref) -> None:
        for key, secrets in self._secrets.items():
            if key[0] == namespace and what.kind == "Secret" and what.name in secrets:
                self._wake(key)

    def _wake(self, key: Key) -> None:
        """Its core isn't asked again where it was: another pod may have its address by now."""
        self._right.pop(key, None)
        self._passes.wake(key)

    def busy_with(self) -> set[Key]:
        """The MqttClusters whose MqttUsers are being kept."""
        return self._passes.busy_with()

    async def stop(self) -> None:
        await asyncio.gather(self._passes.stop(), self._looks.stop())

    def _forget(self, key: Key) -> None:
        self._right.pop(key, None)
        self._secrets.pop(key, None)
        self._metrics.users.pop(key, None)

    async def _pass(self, key: Key) -> Done:
        namespace, cluster = key
        listed = await self._kube.list(USER_KIND, namespace, {})
        bodies = [body for body in listed if (body.get("spec") or {}).get("cluster") == cluster]
        self._right.pop(key, None)
        users, verdicts = await self._decoded(bodies)
        self._secrets[key] = frozenset(user.spec.password_secret_ref.name for user in users)
        if users:
            verdicts += await self._look_after(key, users)
        self._metrics.users[key] = Counter(verdict.reason for verdict in verdicts)
        waits = any(verdict.reason == NOT_READY for verdict in verdicts)
        look_again_s = WAITING_RESYNC_S if waits else settled_resync_s() if key in self._right else RESYNC_S
        if key in self._right:
            self._looks.wake(key)
        return Done(not bodies, changed=any(verdict.event for verdict in verdicts), look_again_s=look_again_s)

    async def _look(self, key: Key) -> Done:
        right = self._right.get(key)
        if right and not await is_still(right) and self._right.get(key) is right:
            self._wake(key)
        return Done(gone=key not in self._right, look_again_s=RESYNC_S)

    async def _decoded(self, bodies: list[Manifest]) -> tuple[list[MqttUser], list[Verdict]]:
        users: list[MqttUser] = []
        verdicts: list[Verdict] = []
        for body in bodies:
            try:
                users.append(decode_user(body))
            except SpecError as error:
                verdicts.append(Verdict(False, "InvalidSpec", str(error)))
                await self._report(body, verdicts[-1])
        return users, verdicts

    async def _look_after(self, key: Key, users: list[MqttUser]) -> list[Verdict]:
        access = await find_access(self._kube, self._settings, *key)
        if isinstance(access, Absent):
            return await self._each(users, lambda user: without_cluster(self._kube, user, access))
        async with connected(access, UserApi) as api:
            keeper = Keeper(self._kube, key, access.key, api, users)
            verdicts = await self._each(users, keeper.keep)
        if len(verdicts) == len(users) and all(verdict.ready and verdict.event is None for verdict in verdicts):
            self._right[key] = Right(access, keeper.seen)
        return verdicts

    async def _each(
        self, users: list[MqttUser], keep: Callable[[MqttUser], Awaitable[Verdict | None]]
    ) -> list[Verdict]:
        """Raises what failed first, when all others are done."""
        room = asyncio.Semaphore(CONNECTIONS_MAX)

        async def one(user: MqttUser) -> Verdict | None:
            async with room:
                verdict = await keep(user)
                if verdict:
                    await self._report(user.body, verdict)
                return verdict

        results = await asyncio.gather(*map(one, users), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Verdict)]

    async def _report(self, body: Manifest, verdict: Verdict) -> None:
        status = make_user_status(body, verdict, datetime.now(UTC))
        events = user_events(body.get("status") or {}, verdict)
        await report(self._kube, body, status, events, self._settings.pod_name)
