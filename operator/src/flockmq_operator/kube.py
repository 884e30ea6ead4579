"""The API server, as much of it as the operator needs: plain JSON in, plain JSON out.

Every request has a deadline and fails in one of two ways: `Refused`, when the server understood and said no (the
message is its sentence), or `Unreachable`, when it couldn't be asked; the first needs somebody to act, the second time.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from flockmq_operator.drift import FIELD_MANAGER
from flockmq_operator.manifest import Manifest
from flockmq_operator.rebalances.spec import REBALANCE_KIND, REBALANCE_PLURAL
from flockmq_operator.spec import GROUP, KIND, PLURAL, VERSION
from flockmq_operator.users.spec import USER_KIND, USER_PLURAL

REQUEST_S = 15.0
"""The deadline of one request."""
WATCH_S = 240
"""How long one watch lasts."""
WATCH_IDLE_S = 70.0
"""How long a watch may be silent, since the server tells its version each minute: its connection may be dead."""
EVENT_MAX_BYTES = 4 * 1024 * 1024
"""Of an event in a watch; an object has 1.5 MiB at most."""


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Exception):
    pass


class NotServed(Unreachable):
    """The API server knows no objects of that kind: their definition isn't installed."""


class Resource(NamedTuple):
    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


RESOURCES: dict[str, Resource] = {
    KIND: Resource(GROUP, VERSION, PLURAL),
    USER_KIND: Resource(GROUP, VERSION, USER_PLURAL),
    REBALANCE_KIND: Resource(GROUP, VERSION, REBALANCE_PLURAL),
    "ServiceAccount": Resource("", "v1", "serviceaccounts"),
    "Secret": Resource("", "v1", "secrets"),
    "ConfigMap": Resource("", "v1", "configmaps"),
    "NetworkPolicy": Resource("networking.k8s.io", "v1", "networkpolicies"),
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets"),
    "PersistentVolumeClaim": Resource("", "v1", "persistentvolumeclaims"),
    "Service": Resource("", "v1", "services"),
    "StatefulSet": Resource("apps", "v1", "statefulsets"),
    "Deployment": Resource("apps", "v1", "deployments"),
    "ReplicaSet": Resource("apps", "v1", "replicasets"),
    "ControllerRevision": Resource("apps", "v1", "controllerrevisions"),
    "HorizontalPodAutoscaler": Resource("autoscaling", "v2", "horizontalpodautoscalers"),
    "CronJob": Resource("batch", "v1", "cronjobs"),
    "Job": Resource("batch", "v1", "jobs"),
    "Pod": Resource("", "v1", "pods"),
    "Event": Resource("events.k8s.io", "v1", "events"),
}

NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""How the name of any object of these kinds looks. What a spec names is anybody's text: in a path `..` leads out of its
namespace, `?` and `/` to another request."""

OF_ONE_OBJECT = (b"failed to create typed patch object", b"failed calling webhook")
"""What an API server says with HTTP 500 though it is well: an object isn't what its schema says, or somebody's webhook
for objects of that kind is away."""
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_EVENTS = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Kube:
    """A connection to the API server; `open` before use."""

    def __init__(self, api: client.ApiClient, field_manager: str = FIELD_MANAGER) -> None:
        """`field_manager`: under which name objects are changed."""
        self.api = api
        self._field_manager = field_manager

    @classmethod
    async def open(cls) -> Self:
        """By the pod's ServiceAccount, else by the kubeconfig; raises kubernetes.aio.config.ConfigException."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(client.ApiClient(configuration))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.api.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """None: there is no such object."""
        try:
            return await self.request("GET", _path(kind, namespace, name))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def list(
        self, kind: str, namespace: str | None, labels: dict[str, str], *, metadata_only: bool = False, limit: int = 0
    ) -> list[Manifest]:
        """`namespace` None: of all. `limit`: the most that are listed; 0: all."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        if limit:
            query["limit"] = str(limit)
        accept = METADATA_ONLY if metadata_only else "application/json"
        answer = await self.request("GET", _path(kind, namespace), query=query, accept=accept)
        items: list[Manifest] = answer["items"] or []  # null in an empty list of metadata
        return [
            {**item, "apiVersion": RESOURCES[kind].api_version, "kind": kind} for item in items
        ]  # a list says it once

    async def newest_version(self, kind: str, namespace: str | None) -> str:
        """From where to watch what changes from now on."""
        path = _path(kind, namespace)
        answer = await self.request("GET", path, query={"limit": "1"}, accept=METADATA_ONLY)
        version: str = answer["metadata"]["resourceVersion"]
        return version

    async def watch(self, kind: str, namespace: str | None, version: str) -> AsyncIterator[Manifest]:
        """Events of objects (`type`; `object`, of which there is the metadata alone), for WATCH_S, or until it has been
        silent for WATCH_IDLE_S. The next one goes on from the version of the last event. A `version` that is too old is
        an event, too. `namespace` None: of all."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S)}
        path = f"{_path(kind, namespace)}?{urlencode({**query, 'resourceVersion': version})}"
        try:
            async with asyncio.timeout(REQUEST_S):
                headers = {"Accept": METADATA_EVENTS}
                method, url, headers, data, _ = await self.api.param_serialize(
                    "GET", path, header_params=headers, auth_settings=["BearerToken"]
                )
                answer = await self.api.call_api(method, url, headers, data)
                if answer.status != 200:
                    raise Refused(answer.status, sentence_of(await answer.read()))  # type: ignore[no-untyped-call]
            async with answer.response as response:
                try:
                    async with asyncio.timeout(WATCH_IDLE_S) as idle:
                        async for line in _lines(response.content):
                            yield json.loads(line)
                            idle.reschedule(asyncio.get_running_loop().time() + WATCH_IDLE_S)
                except TimeoutError:
                    return
        except (TimeoutError, OSError, ValueError, aiohttp.ClientError) as error:
            raise Unreachable(f"GET {path}: {str(error) or type(error).__name__}") from None

    async def apply(self, manifest: Manifest, subresource: str = "") -> Manifest:
        """Server-side apply; fields of ours that others changed are taken back."""
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self.request(
            "PATCH",
            f"{path}/{subresource}" if subresource else path,
            query={"fieldManager": self._field_manager, "force": "true"},
            content_type="application/apply-patch+yaml",
            body=manifest,
        )

    async def patch(self, manifest: Manifest) -> Manifest:
        """Merge `manifest` into this very object, where server-side apply can't: null removes a field of anybody's."""
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self.request(
            "PATCH",
            path,
            query={"fieldManager": self._field_manager},
            content_type="application/merge-patch+json",
            body=manifest,
        )

    async def replace(self, manifest: Manifest) -> Manifest:
        """All of an object that was read: Refused with 409 if anybody has changed it since."""
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self.request("PUT", path, query={"fieldManager": self._field_manager}, body=manifest)

    async def create(self, manifest: Manifest) -> Manifest:
        path = _path(manifest["kind"], manifest["metadata"]["namespace"])
        return await self.request("POST", path, query={"fieldManager": self._field_manager}, body=manifest)

    async def delete(self, live: Manifest) -> None:
        """Delete this very object: not one that has since taken its name. Gone already is fine."""
        metadata = live["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        try:
            await self.request("DELETE", _path(live["kind"], metadata["namespace"], metadata["name"]), body=body)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Manifest:
        try:
            async with asyncio.timeout(REQUEST_S):
                method, url, headers, data, _ = await self.api.param_serialize(
                    method,
                    f"{path}?{urlencode(query)}" if query else path,
                    header_params={"Accept": accept, "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response = await self.api.call_api(method, url, headers, data)
                text = await response.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            raise Unreachable(f"{method} {path}: {str(error) or type(error).__name__}") from None
        if response.status == 500 and any(words in text for words in OF_ONE_OBJECT):
            raise Refused(500, sentence_of(text))
        if response.status >= 500 or response.status == 429:
            raise Unreachable(f"{method} {path}: HTTP {response.status}")
        try:
            answer: Manifest = json.loads(text)
        except ValueError:
            if response.status == 404:
                raise NotServed(f"{method} {path}: HTTP 404: nothing is served there") from None
            raise Unreachable(f"{method} {path}: HTTP {response.status} without JSON: is it an API server?") from None
        if response.status >= 400:
            raise Refused(response.status, str(answer.get("message") or response.reason))
        return answer


def sentence_of(answer: bytes) -> str:
    """The message of a Status."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Raises ValueError. (The reader's own are too short for an object with large annotations.)"""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > EVENT_MAX_BYTES:
            raise ValueError(f"an event of more than {EVENT_MAX_BYTES} bytes")


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    """`namespace` None: all; `name` None: all of them. Raises Refused where no object can have that name."""
    resource = RESOURCES[kind]
    path = (
        f"{resource.base}/namespaces/{namespace}/{resource.plural}"
        if namespace
        else f"{resource.base}/{resource.plural}"
    )
    if name is None:
        return path
    if not NAME.fullmatch(name):
        raise Refused(404, f"{kind} {name!r} can't exist: that is no name of an object")
    return f"{path}/{name}"
