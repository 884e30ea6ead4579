"""Whether a cluster still has its users as the last pass found them: asked of the core that the pass has asked.

So what somebody else changes there is noticed soon, and a pass, which reads every MqttUser and its Secret from the API
server, is made only then, or when a watch says so.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from flockmq_operator.management_api import CONNECTIONS_MAX, Access, NodeAway, NodeRefuses, connected
from flockmq_operator.users.api import Seen, UserApi


class Right(NamedTuple):
    """All as the MqttUsers of a MqttCluster say."""

    access: Access
    users: Mapping[str, Seen]
    """By user name."""


async def is_still(right: Right) -> bool:
    """False, too, where the core can't be asked or refuses."""
    room = asyncio.Semaphore(CONNECTIONS_MAX)
    async with connected(right.access, UserApi) as api:

        async def is_same(name: str, seen: Seen) -> bool:
            async with room:
                try:
                    return await api.seen(name) == seen
                except (NodeAway, NodeRefuses):
                    return False

        return all(await asyncio.gather(*(is_same(*item) for item in right.users.items())))
