"""What a cluster's nodes do, asked of its cores: how many connections each has, and whether it sends clients away to
balance them. A redirect is no answer: pods don't choose whom the operator asks."""

from collections.abc import Awaitable, Callable

import aiohttp
import msgspec

from flockmq_operator.resources.context import MANAGEMENT_PORT, Context
from flockmq_operator.slots import asking

ASK_S = 3.0
ANSWER_MAX_BYTES = 4 * 1024 * 1024
"""A thousand nodes answer with about 0.4 MiB."""


class Node(msgspec.Struct, frozen=True):
    """One that no core hears has the defaults."""

    name: str
    """That of its pod."""
    role: str
    connections: int = 0
    heard: bool = False
    draining: bool = False
    rebalancing: bool = False
    """Whether it sends clients beyond its share to other nodes."""
    has_too_much: bool = False
    """Whether it does so, or will when it has waited."""


class _Answer(msgspec.Struct, frozen=True):
    nodes: list[Node]


AskNodes = Callable[[Context], Awaitable[list[Node] | None]]


async def ask_nodes(session: aiohttp.ClientSession, context: Context) -> list[Node] | None:
    """None: no core answered with a list of nodes. Whose certificate it shows is no matter: nothing is told it, and the
    most that a wrong answer does is more pods, within the spec's bounds, and half of the pods out of the Service."""
    try:
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with (
            asking(),
            session.get(url_of(context), timeout=timeout, allow_redirects=False, ssl=False) as response,
        ):
            if response.status != 200:
                return None
            answer = b""
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > ANSWER_MAX_BYTES:
                    return None
            return msgspec.json.decode(answer, type=_Answer).nodes
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
        return None


def url_of(context: Context) -> str:
    """The headless Service: any core that answers knows of all nodes."""
    scheme = "https" if context.spec.management.tls else "http"
    return f"{scheme}://{context.core}.{context.namespace}:{MANAGEMENT_PORT}/api/v5/cluster"
