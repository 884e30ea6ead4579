"""The API server, as much of it as the operator needs: plain JSON in, plain JSON out.

Every request has a deadline and fails in one of two ways: `Refused`, when the server understood and said no (the
message is its sentence), or `Unreachable`, when it couldn't be asked; the first needs somebody to act, the second time.
"""

import asyncio
import json
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from flockmq_operator.drift import FIELD_MANAGER
from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import GROUP, KIND, PLURAL, VERSION

REQUEST_S = 15.0
"""The deadline of one request."""


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Exception):
    pass


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
    "HorizontalPodAutoscaler": Resource("autoscaling", "v2", "horizontalpodautoscalers"),
    "CronJob": Resource("batch", "v1", "cronjobs"),
    "Pod": Resource("", "v1", "pods"),
    "Event": Resource("events.k8s.io", "v1", "events"),
}

OF_ONE_OBJECT = (b"failed to create typed patch object", b"failed calling webhook")
"""What an API server says with HTTP 500 though it is well: an object isn't what its schema says, or somebody's webhook
for objects of that kind is away."""
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Kube:
    """A connection to the API server; `open` before use."""

    def __init__(self, api: client.ApiClient) -> None:
        self.api = api

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
        self, kind: str, namespace: str, labels: dict[str, str], *, metadata_only: bool = False, limit: int = 0
    ) -> list[Manifest]:
        """`limit`: the most that are listed; 0: all."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        if limit:
            query["limit"] = str(limit)
        accept = METADATA_ONLY if metadata_only else "application/json"
        answer = await self.request("GET", _path(kind, namespace), query=query, accept=accept)
        items: list[Manifest] = answer["items"] or []  # null in an empty list of metadata
        return [
            {**item, "apiVersion": RESOURCES[kind].api_version, "kind": kind} for item in items
        ]  # a list says it once

    async def apply(self, manifest: Manifest, subresource: str = "") -> Manifest:
        """Server-side apply; fields of ours that others changed are taken back."""
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self.request(
            "PATCH",
            f"{path}/{subresource}" if subresource else path,
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
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
            query={"fieldManager": FIELD_MANAGER},
            content_type="application/merge-patch+json",
            body=manifest,
        )

    async def create(self, manifest: Manifest) -> Manifest:
        path = _path(manifest["kind"], manifest["metadata"]["namespace"])
        return await self.request("POST", path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

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


def _path(kind: str, namespace: str, name: str = "") -> str:
    resource = RESOURCES[kind]
    path = f"{resource.base}/namespaces/{namespace}/{resource.plural}"
    return f"{path}/{name}" if name else path
