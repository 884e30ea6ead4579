"""What the last report says first, as its pod left it behind: `status.report`, and a sentence. Pure.

The report writes a line of JSON into its termination log, which the kubelet puts into the pod's status; its volume is
read by nobody. A pod's last words are somebody else's text: what isn't bounded as the CRD asks is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from flockmq_operator.manifest import Manifest

CONTAINER = "report"
TERMINATION_LOG = "/dev/termination-log"
"""Where the kubelet looks; it keeps 4 KiB."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""As many as JSON's readers tell apart."""


class Headline(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """As `flockmq_analytics.headline` writes it; its later fields are ignored."""

    day: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    time_zone: Text
    made_at: Text
    is_over: bool
    clients: Count
    refused: Count
    lost_events: Count
    peak_connections: Count | None = None
    worst_lag_ms: Count | None = None
    changed: Annotated[list[Annotated[str, msgspec.Meta(max_length=512)]], msgspec.Meta(max_length=16)] = []


def wants_pods(cron: Manifest | None, known: Manifest) -> bool:
    """Whether a report has succeeded of which `known`, the `status.report` so far, says nothing."""
    succeeded = (cron or {}).get("status", {}).get("lastSuccessfulTime")
    return bool(succeeded) and succeeded != known.get("lastSuccessfulTime")


def of_pods(cron: Manifest | None, pods: Iterable[Manifest], known: Manifest) -> Manifest:
    """`status.report`; a report that had nothing to tell leaves what the one before told."""
    if not wants_pods(cron, known):
        return known
    assert cron is not None
    told = max(last_words(pods), key=lambda one: one[0], default=("", None))[1]
    said = msgspec.to_builtins(told) if told else known
    return {**said, "lastSuccessfulTime": cron["status"]["lastSuccessfulTime"]}


def last_words(pods: Iterable[Manifest]) -> Iterator[tuple[str, Headline]]:
    """(when it ended, what it said) of each pod that made a report; an ingest says nothing."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", ()):
            ended = container.get("state", {}).get("terminated") or {}
            if container["name"] != CONTAINER or ended.get("exitCode") != 0 or not ended.get("message"):
                continue
            try:
                yield ended.get("finishedAt") or "", msgspec.json.decode(ended["message"], type=Headline)
            except (msgspec.MsgspecError, UnicodeError):
                continue  # of a release that says it otherwise


def sentence(told: Mapping[str, Any]) -> str:
    """Of `status.report`; "": no report told anything."""
    if "day" not in told:
        return ""
    peak, lag, lost = told.get("peakConnections"), told.get("worstLagMs"), told["lostEvents"]
    parts = [
        "connections unknown" if peak is None else f"{_counted(peak, 'connection')} at the peak",
        _counted(told["clients"], "client"),
        f"{told['refused']:,} refused",
        *([] if lag is None else [f"lag up to {lag:,} ms"]),
        f"{_counted(lost, 'event')} lost" if lost else "no event lost",
    ]
    so_far = "" if told["isOver"] else " so far"
    changed = "".join(f"; {one.rstrip('.')}" for one in told.get("changed", ()))
    return f"{told['day']}{so_far}: {', '.join(parts)}{changed}"


def _counted(count: Any, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
