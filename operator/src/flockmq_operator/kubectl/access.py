"""The API server that kubectl would talk to, with its namespace: by the kubeconfig."""

import logging
import os
from typing import NamedTuple

from kubernetes.aio import client, config

from flockmq_operator.kube import Kube
from flockmq_operator.kubectl.failed import WRONG_ARGUMENTS, Failed

FIELD_MANAGER = "kubectl-flockmq"
"""Under which name it changes objects."""


class Access(NamedTuple):
    kube: Kube
    namespace: str
    """The one that was asked for, else that of the context, else `default`."""


async def open_access(kubeconfig: str | None, context: str | None, namespace: str | None) -> Access:
    """Raises Failed."""
    logging.getLogger("kubernetes.aio.config").setLevel(logging.CRITICAL)  # what is wrong is told below
    configuration = client.Configuration()
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration
        )
        told = loader.current_context["context"].get("namespace")
        kube = Kube(client.ApiClient(configuration), FIELD_MANAGER)
    except Exception as error:  # the library raises whatever a file that is no kubeconfig leads to
        raise Failed(_cannot_use(kubeconfig, context, error), WRONG_ARGUMENTS) from None
    return Access(kube, namespace or told or "default")


def _cannot_use(kubeconfig: str | None, context: str | None, error: Exception) -> str:
    file = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    where = f"kubeconfig {file}, context {context}" if context else f"kubeconfig {file}"
    why = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{where}: it can't be used: {why}; name another one with --kubeconfig or KUBECONFIG, or see that kubectl works"
    )
