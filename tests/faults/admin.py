"""An operator's hands on real nodes: bans and rules, by HTTP to their management (docs/access.md).

A rule that denies stands in the one list of rules for all clients, which is replaced as a whole. So changes of rules
wait for one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp

from judges.topics import denied_action
from load.stage import AdminFailed

KEY: Final = "a fault campaign's API key, 32 letters+"
ANSWER_MAX_S: Final = 2.0
NOT_FOUND: Final = 404


def settings(key_file: Path) -> dict[str, str]:
    """Of nodes that are to be told what to do: of their environment, FLOCKMQ_ names without the FLOCKMQ_."""
    key_file.write_text(KEY)
    return {
        "MANAGEMENT__API_KEY_FILE": str(key_file),
        "AUTHORIZATION__SOURCES": '[{"type": "built_in_database"}]',
        "AUTHORIZATION__NO_MATCH": "allow",
    }


class HttpAdmin:
    """`url(node)` is that of the node's management."""

    def __init__(self, url: Callable[[str], str]) -> None:
        self._url = url
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {KEY}"}, timeout=aiohttp.ClientTimeout(total=ANSWER_MAX_S)
        )
        self._denied: dict[str, None] = {}
        self._changing_rules = asyncio.Lock()

    async def aclose(self) -> None:
        await self._http.close()

    async def ban(self, node: str, client: str) -> None:
        await self._ask(node, "POST", "bans", {"as": "clientid", "who": client})

    async def lift(self, node: str, client: str) -> None:
        """A node that hasn't read of the ban yet can't lift it, until it has made it once more."""
        path = f"bans/clientid/{client}"
        while await self._ask(node, "DELETE", path) == NOT_FOUND:
            await self.ban(node, client)

    async def deny(self, node: str, prefix: str) -> None:
        async with self._changing_rules:
            self._denied[prefix] = None
            await self._put_rules(node)

    async def allow(self, node: str, prefix: str) -> None:
        async with self._changing_rules:
            self._denied.pop(prefix, None)
            await self._put_rules(node)

    async def _put_rules(self, node: str) -> None:
        rules = [
            {
                "permit": "deny",
                "action": denied_action(prefix),
                "topics": [prefix, f"{prefix}/#"],
            }
            for prefix in self._denied
        ]
        await self._ask(node, "PUT", "rules/all", {"rules": rules})

    async def _ask(self, node: str, method: str, path: str, body: object = None) -> int:
        """The status, where it is a yes or NOT_FOUND."""
        try:
            async with self._http.request(method, f"{self._url(node)}/api/v1/{path}", json=body) as answer:
                if answer.ok or answer.status == NOT_FOUND:
                    return answer.status
                raise AdminFailed(f"{method} {path}: {answer.status} {await answer.text()}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AdminFailed(f"{method} {path}: {error!r}") from None
