"""What is asked of a cluster's management API about settings that nodes change while they run."""

import msgspec

from flockmq_operator.management_api import ManagementApi, decoded
from flockmq_operator.manifest import Manifest

PATH = "/api/v1/settings"


class _Shown(msgspec.Struct, frozen=True):
    document: Manifest


class SettingsApi(ManagementApi):
    """Each method raises NodeRefuses, NodeAway."""

    async def document(self) -> Manifest:
        answer, _ = await self.ask("GET", PATH)
        return decoded(answer, _Shown).document

    async def change(self, patch: Manifest) -> None:
        await self.ask("PATCH", PATH, patch)
