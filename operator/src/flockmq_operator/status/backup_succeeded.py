"""BackupSucceeded: the latest backup, as its CronJob tells; and how many failed since one succeeded. The broker does
without, so it is no part of Ready.
"""

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.resources.labels import selector_string
from flockmq_operator.status.condition import Condition, Situation

TYPE = "BackupSucceeded"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    spec = context.spec.backup
    if spec is None:
        return Condition(TYPE, None, "Disabled", "there is no spec.backup")
    cron = observed.objects.get(Ref("CronJob", context.backup), {}).get("status", {})
    began, succeeded = cron.get("lastScheduleTime", ""), cron.get("lastSuccessfulTime", "")
    last = f"the last one that did, at {succeeded}" if succeeded else "none did before"
    if cron.get("active"):  # what was said of the one before still stands
        before = situation.before.get(TYPE, {}).get("status")
        status = {"True": True, "False": False}.get(before or "")
        return Condition(TYPE, status, "Running", f"one began at {began}; {last}")
    if not began and not succeeded:
        return Condition(TYPE, None, "NotRunYet", f"its schedule is {spec.schedule!r}")
    if succeeded < began:  # both are RFC 3339, of UTC, in seconds
        logs = f"kubectl logs --namespace {context.namespace} --selector {selector_string(context, 'backup')} --prefix"
        see = f"see its pods: {logs} --all-containers"
        return Condition(TYPE, False, "Failed", f"the run of {began} didn't succeed, {last}; {see}")
    return Condition(TYPE, True, "Succeeded", f"at {succeeded}")


def count(live: Manifest | None, before: Manifest) -> Manifest:
    """`status.backup`, from the CronJob and from what it was before."""
    cron = (live or {}).get("status", {})
    began, succeeded = cron.get("lastScheduleTime", ""), cron.get("lastSuccessfulTime", "")
    missed, failed = before.get("missed", 0), before.get("lastFailedTime", "")
    if succeeded and succeeded >= began:
        missed = 0
    elif began and began != failed and not cron.get("active"):
        missed, failed = missed + 1, began
    times = {"lastSuccessfulTime": succeeded, "lastFailedTime": failed}
    return {**{name: time for name, time in times.items() if time}, "missed": missed}
