"""A command in a container, as `kubectl exec` runs it: by a WebSocket, each of whose messages begins with a channel."""

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp

from flockmq_operator.kube import Kube, Refused, Unreachable

PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3
"""Channels; the last one has a Status object when the command has ended."""
COMMAND_S = 15.0
"""The deadline of one command."""
OUTPUT_MAX_BYTES = 16 * 1024 * 1024
"""Of one command; a thousand nodes tell of themselves in 2 MiB."""


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


async def execute(kube: Kube, namespace: str, pod: str, container: str, command: Sequence[str]) -> Ended:
    """Raises Refused and Unreachable."""
    wanted = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query = urlencode([*(("command", word) for word in command), *wanted])
    where = f"pod {pod} in namespace {namespace}"
    try:
        async with asyncio.timeout(COMMAND_S):
            return await _run(kube, f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{query}", where)
    except aiohttp.WSServerHandshakeError as error:
        raise _refusal(error.status, where) from None
    except TimeoutError:
        raise Unreachable(f"{where}: a command in it didn't end within {COMMAND_S:.0f} s") from None
    except (OSError, aiohttp.ClientError) as error:
        raise Unreachable(f"{where}: no command can be run in it: {str(error) or type(error).__name__}") from None


async def _run(kube: Kube, path: str, where: str) -> Ended:
    _, url, headers, _, _ = await kube.api.param_serialize("GET", path, header_params={}, auth_settings=["BearerToken"])
    rest = kube.api.rest_client
    rest.pool_manager = rest.pool_manager or rest._create_pool_manager()
    texts: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray(), STATUS: bytearray()}
    async with rest.pool_manager.ws_connect(
        "ws" + url.removeprefix("http"),
        headers=headers,
        protocols=(PROTOCOL,),
        proxy=rest.proxy,
        proxy_headers=rest.proxy_headers,
        server_hostname=kube.api.configuration.tls_server_name,
    ) as messages:
        async for message in messages:
            if message.type is aiohttp.WSMsgType.BINARY and message.data and message.data[0] in texts:
                texts[message.data[0]] += message.data[1:]
                if sum(map(len, texts.values())) > OUTPUT_MAX_BYTES:
                    raise Unreachable(f"{where}: a command in it wrote more than {OUTPUT_MAX_BYTES} bytes")
    if not texts[STATUS]:
        raise Unreachable(f"{where}: the connection to it ended before the command did")
    stdout, stderr = (bytes(texts[channel]).decode(errors="replace") for channel in (STDOUT, STDERR))
    return Ended(_code(bytes(texts[STATUS]), where), stdout, stderr)


def _code(status: bytes, where: str) -> int:
    """The command's exit code. Raises Unreachable where there was no command that could end."""
    try:
        told = json.loads(status)
        if told["status"] == "Success":
            return 0
        causes = {cause["reason"]: cause["message"] for cause in told.get("details", {}).get("causes") or ()}
        return int(causes["ExitCode"])
    except (ValueError, KeyError, TypeError):
        why = " ".join(status.decode(errors="replace").split())
        raise Unreachable(f"{where}: no command can be run in it: {why}") from None


def _refusal(status: int, where: str) -> Exception:
    if status in (401, 403):
        return Refused(
            status, f"{where}: you may not run commands in it, which takes the right to create and get pods/exec"
        )
    if status == 404:
        return Refused(status, f"{where}: there is none")
    return Unreachable(f"{where}: no command can be run in it: HTTP {status}, as while its container isn't running")
