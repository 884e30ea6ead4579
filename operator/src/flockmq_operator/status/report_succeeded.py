"""ReportSucceeded: the latest runs of the report and of the ingest, as their CronJobs tell, and what the report says
first. The broker does without, so it is no part of Ready.
"""

from flockmq_operator import report_headline
from flockmq_operator.manifest import Ref
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import selector_string
from flockmq_operator.status.condition import Condition, Situation

TYPE = "ReportSucceeded"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    if not context.spec.report.enabled:
        return Condition(TYPE, None, "Disabled", "spec.report.enabled is false")
    ingest = observed.objects.get(Ref("CronJob", context.ingest), {}).get("status", {})
    if not ingest.get("active") and ingest.get("lastSuccessfulTime", "") < ingest.get("lastScheduleTime", ""):
        message = f"the ingest of {ingest['lastScheduleTime']} didn't succeed; see its pods: {_logs(context)}"
        return Condition(TYPE, False, "IngestFailed", message)
    status = observed.objects.get(Ref("CronJob", context.report), {}).get("status", {})
    began, succeeded = status.get("lastScheduleTime", ""), status.get("lastSuccessfulTime", "")
    if status.get("active"):
        return Condition(TYPE, None, "Running", f"began at {began}")
    if not began and not succeeded:
        return Condition(TYPE, None, "NotRunYet", f"its schedule is {context.spec.report.schedule!r}")
    if succeeded < began:  # both are RFC 3339, of UTC, in seconds
        last = f"the last one that did, at {succeeded}" if succeeded else "none did before"
        message = f"the run of {began} didn't succeed, {last}; see its pods: {_logs(context)}"
        return Condition(TYPE, False, "Failed", message)
    told = report_headline.sentence(situation.reported)
    return Condition(TYPE, True, "Succeeded", f"at {succeeded}; {told}" if told else f"at {succeeded}")


def _logs(context: Context) -> str:
    return f"kubectl logs --namespace {context.namespace} --selector {selector_string(context, 'report')} --prefix"
