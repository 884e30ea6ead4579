"""How many connections a cluster holds, asked of its cores. A redirect is no answer: pods don't choose whom the
operator asks."""

import aiohttp
import msgspec

from flockmq_operator.resources.context import MANAGEMENT_PORT, Context

ASK_S = 3.0
ANSWER_MAX_BYTES = 4 * 1024 * 1024
"""A thousand nodes answer with about 0.3 MiB."""


class Node(msgspec.Struct):
    connections: int


async def count_connections(session: aiohttp.ClientSession, context: Context) -> int | None:
    """The sum over all nodes; None: no core answered with a list of nodes. Whose certificate it shows is no matter:
    nothing is told it, and a number too high makes pods within the spec's bounds."""
    try:
        async with session.get(
            url_of(context), timeout=aiohttp.ClientTimeout(total=ASK_S), allow_redirects=False, ssl=False
        ) as response:
            if response.status != 200:
                return None
            answer = b""
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > ANSWER_MAX_BYTES:
                    return None
            nodes = msgspec.json.decode(answer, type=list[Node])
            return sum(max(node.connections, 0) for node in nodes)  # -1: nothing was heard of that node yet
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
        return None


def url_of(context: Context) -> str:
    """The headless Service: any core that answers knows of all nodes."""
    scheme = "https" if context.spec.management.tls else "http"
    return f"{scheme}://{context.core}.{context.namespace}:{MANAGEMENT_PORT}/api/v1/nodes"
