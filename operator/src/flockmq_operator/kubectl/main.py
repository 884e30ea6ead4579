"""`kubectl flockmq`: the arguments, and how it ends: what is wrong is one line, and says what to do.

Exit codes: 0 done; 1 it can't be done, or was refused: the sentence says why; 2 the arguments or the kubeconfig are
wrong; 3 the API server can't be reached; 130 interrupted.
"""

import argparse
import asyncio
import functools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from flockmq_operator.kube import Kube, NotServed, Refused, Unreachable
from flockmq_operator.kubectl import drain, restart, rollback, status
from flockmq_operator.kubectl.access import Access, open_access
from flockmq_operator.kubectl.ctl import Execute
from flockmq_operator.kubectl.execute import Ended, execute
from flockmq_operator.kubectl.failed import NO_API_SERVER, NOT_DONE, WRONG_ARGUMENTS, Failed
from flockmq_operator.kubectl.text import shown

PROGRAM = "kubectl flockmq"
INTERRUPTED = 130
EXIT_CODES = (
    "exit codes: 0 done; 1 it can't be done, or was refused; 2 the arguments or the kubeconfig are wrong; "
    "3 the API server can't be reached; 130 interrupted"
)

WHAT_TO_DO = {
    401: "; log in to the cluster again, so that kubectl works",
    403: "; ask whoever gives rights there for those that docs/kubernetes.md names (From the command line)",
    409: "; look again, with the same command",
    422: "; change what it names in the MqttCluster's spec",
}
"""By the HTTP status of a refusal."""

Command = Callable[[Access, argparse.Namespace], Awaitable[None]]


class Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Without the usage, which takes lines."""
        sys.exit(complain(f"{message}; how it is written: {self.prog} --help", WRONG_ARGUMENTS))


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    try:
        asyncio.run(run(options))
    except Failed as failed:
        sys.exit(complain(str(failed), failed.code))
    except Refused as refused:
        sys.exit(complain(f"the API server refuses it: {refused}{WHAT_TO_DO.get(refused.status, '')}", NOT_DONE))
    except NotServed:
        where = "name another cluster with --context, or install the operator's chart"
        sys.exit(complain(f"there are no MqttClusters: the API server doesn't know the kind; {where}", NOT_DONE))
    except Unreachable as error:
        where = "see that kubectl works, or name another cluster with --context"
        sys.exit(complain(f"the API server can't be reached, or doesn't answer: {error}; {where}", NO_API_SERVER))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  # nothing more is flushed there


def complain(message: str, code: int) -> int:
    print(f"{PROGRAM}: {shown(message)}", file=sys.stderr)
    return code


async def run(options: argparse.Namespace) -> None:
    """Raises Failed, Refused and Unreachable."""
    access = await open_access(options.kubeconfig, options.context, options.namespace)
    async with access.kube:
        await options.command(access, options)


def parser() -> argparse.ArgumentParser:
    found = Arguments(
        prog=PROGRAM,
        description="What MqttClusters do, and what an operator does with them.",
        epilog=EXIT_CODES,
    )
    add_access(found, None)
    commands = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    shows = add_command(commands, "status", "a cluster on one screen: what is wrong, first; or all, a line each", show)
    shows.add_argument("name", nargs="?", metavar="NAME", help="of a MqttCluster; without it all are listed")
    shows.add_argument("-A", "--all-namespaces", action="store_true", help="list those of all namespaces")
    restarts = add_command(commands, "restart", "new pods from the same spec, one at a time", do_restart)
    restarts.add_argument("name", metavar="NAME", help="of a MqttCluster")
    parts = ", ".join(restart.PARTS)
    restarts.add_argument("part", nargs="?", metavar="PART", choices=[*restart.PARTS], help=f"{parts} (default: all)")
    drains = add_command(commands, "drain", "have a node's clients go to other nodes, while its pod runs on", do_drain)
    drains.add_argument("pod", metavar="POD", help="of a core or a replicant")
    ways = drains.add_mutually_exclusive_group()
    ways.add_argument("--undo", action="store_true", help="it takes clients again")
    ways.add_argument("--wait", action="store_true", help="until it is empty, showing how many are left")
    longest = f"how long --wait waits, such as 90s, 10m (default: {drain.WAIT_S:.0f}s)"
    drains.add_argument("--timeout", type=seconds, default=drain.WAIT_S, metavar="TIME", help=longest)
    backs = add_command(commands, "rollback", "back to the last spec under which all was well", do_rollback)
    backs.add_argument("name", metavar="NAME", help="of a MqttCluster")
    backs.add_argument("-y", "--yes", action="store_true", help="show what changes, and don't ask")
    return found


def add_command(
    commands: "argparse._SubParsersAction[Arguments]", name: str, what: str, command: Command
) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=what, description=what, epilog=EXIT_CODES)
    add_access(added, argparse.SUPPRESS)
    added.set_defaults(command=command)
    return added


def add_access(to: argparse.ArgumentParser, default: str | None) -> None:
    """kubectl's own options, before or behind the command; there `default` leaves what stood before it."""
    to.add_argument("-n", "--namespace", default=default, help="the namespace (default: that of the context)")
    to.add_argument("--context", default=default, help="of the kubeconfig (default: the current one)")
    to.add_argument("--kubeconfig", default=default, metavar="FILE", help="(default: $KUBECONFIG, else ~/.kube/config)")


def executor(kube: Kube, namespace: str) -> Execute:
    """How commands are run in pods of this namespace."""

    async def run_in(pod: str, container: str, command: Sequence[str]) -> Ended:
        return await execute(kube, namespace, pod, container, command)

    return run_in


def seconds(text: str) -> float:
    """Of a time such as 90, 90s, 10m, 1.5h. Raises argparse.ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number with s, m or h, such as 90s")
    return float(found[1]) * {"m": 60, "h": 3600}.get(found[2], 1)


async def show(access: Access, options: argparse.Namespace) -> None:
    kube, namespace = access
    if options.name is None:
        lines = await status.every(kube, None if options.all_namespaces else namespace)
    elif options.all_namespaces:
        raise Failed(
            "--all-namespaces lists all clusters: leave NAME away, or name a namespace with -n", WRONG_ARGUMENTS
        )
    else:
        lines = await status.one(kube, executor(kube, namespace), namespace, options.name)
    print("\n".join(lines))


async def do_restart(access: Access, options: argparse.Namespace) -> None:
    print("\n".join(await restart.restart(access.kube, access.namespace, options.name, options.part)))


async def do_drain(access: Access, options: argparse.Namespace) -> None:
    kube, namespace = access
    execute_in, say = executor(kube, namespace), functools.partial(print, flush=True)
    if options.undo:
        await drain.undo(kube, execute_in, namespace, options.pod, say)
    else:
        await drain.drain(kube, execute_in, namespace, options.pod, say, options.timeout if options.wait else None)


async def do_rollback(access: Access, options: argparse.Namespace) -> None:
    agree = (lambda: True) if options.yes else rollback.agree_at_terminal
    await rollback.rollback(access.kube, access.namespace, options.name, functools.partial(print, flush=True), agree)
