"""Has nodes told what of `spec.config` they can change while they run, before a plan would roll their pods for it.

If that fails, pods are rolled, as for any other change: nodes of an earlier release don't know such settings, and where
no core is ready there is nobody to tell. What may be in the document then is told again, until it is sure: the status
says so before nodes are told, for this operator may be killed, and the next one may find another spec.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from flockmq_operator.apply import status_manifest
from flockmq_operator.events import MESSAGE_MAX, Event
from flockmq_operator.hot.api import SettingsApi
from flockmq_operator.hot.edit import Edit, Recorded, find_edit, recorded
from flockmq_operator.hot.keys import is_there
from flockmq_operator.kube import Kube
from flockmq_operator.management_access import Absent, find_access
from flockmq_operator.management_api import NodeAway, NodeRefuses, connected
from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    context: Context
    """With the files that stay."""
    record: Recorded
    """What the status is to remember."""
    events: Sequence[Event] = ()
    waiting_for: str = ""


class HotSettings:
    def __init__(self, kube: Kube, settings: Settings) -> None:
        self._kube = kube
        self._settings = settings

    async def bring_about(self, context: Context, observed: Observed, body: Manifest) -> Outcome:
        """`body`: the MqttCluster as it was read; its status is as it is written here."""
        edit, before = find_edit(context, observed), recorded(observed.status)
        kept = replace(context, kept_files=edit.kept)
        if edit.is_recorded(before) and not edit.needed:
            return Outcome(context, before)
        access = await find_access(self._kube, self._settings, context.namespace, context.name)
        if isinstance(access, Absent):
            if edit.is_recorded(before):
                return Outcome(kept, before)
            return self._untold(context, edit, before, access.message)
        try:
            async with connected(access, SettingsApi) as api:
                if edit.is_recorded(before):
                    document = await api.document()
                    if all(is_there(document, path) for path in edit.needed):
                        return Outcome(kept, before)
                await self._note(body, edit.record(is_sure=False))
                await api.change(edit.patch())
        except NodeAway as error:
            if edit.is_recorded(before):
                return Outcome(kept, before)
            return self._untold(context, edit, edit.record(is_sure=False), str(error))
        except NodeRefuses as error:
            return self._untold(context, edit, before, f"nodes refuse: {error}")
        log.info("%s/%s: nodes were told %s", context.namespace, context.name, edit.patch())
        return Outcome(kept, edit.record(), (changed(edit),))

    async def _note(self, body: Manifest, record: Recorded) -> None:
        status = body.get("status") or {}
        if recorded(status) != record:
            body["status"] = {**status, "settings": record.as_status()}
            await self._kube.apply(status_manifest(body, body["status"]), "status")

    def _untold(self, context: Context, edit: Edit, record: Recorded, why: str) -> Outcome:
        """Pods are rolled. What was in the document already counts more than their new files, so it must follow."""
        log.info("%s/%s: settings can't be changed while nodes run: %s", context.namespace, context.name, why)
        waits = f"nodes to take {', '.join(sorted(record.paths))} of spec.config: {why}"
        is_awaited = record.paths and not context.spec.hibernate  # without pods they are told when there are some again
        return Outcome(context, record._replace(digest=""), (), waits if is_awaited else "")


def changed(edit: Edit) -> Event:
    said = [f"{path} = {value}" for path, value in edit.values.items()]
    said += [f"{path} as without it" for path in sorted(edit.gone)]
    sentence = f"Changed while nodes run, as spec.config says: {', '.join(said)}"
    return Event("Normal", "SettingsChanged", sentence[:MESSAGE_MAX])
