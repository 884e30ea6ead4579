"""ServiceAccounts: an identity of its own for nodes and for the report, with no rights and no token in any pod.

That of a report's driver is the exception: it has a token, and the right that somebody gives it, to make executors.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import metadata


def service_accounts(context: Context) -> Iterator[Manifest]:
    drivers = [context.report_driver] if context.executors else []
    for name in (node_account(context), context.report, *drivers):
        yield {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(context, name),
            "automountServiceAccountToken": False,
        }


def node_account(context: Context) -> str:
    return f"{context.name}-node"
