"""The command `flockmq`: its arguments and exit codes.

An error that a user can fix is one line on stderr, `flockmq: error: …`, with an exit code: 2 for the configuration, 3
if Redis is unavailable, 4 for an address that can't be bound, 5 for a core that left its cluster, 1 for others. A
traceback means a bug of ours. Exit code 70 means that a vital task of the node failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import uvloop

from flockmq import __version__, compiled_modules, logs, private_files, tasks
from flockmq.bench import options as bench_options
from flockmq.bounds import WORKERS_MAX
from flockmq.config.load import DEFAULT_LISTENER, Loaded, load_all
from flockmq.config.sources import Setting
from flockmq.ctl import command as ctl
from flockmq.default_callbacks import ignore
from flockmq.errors import UserError
from flockmq.management.view import NodePorts

log = logging.getLogger(__name__)

RUN_OPTIONS: Final = {
    "role": ("role", "ROLE", "core, replicant or single (default: single, a whole broker in one process)"),
    "redis": (
        "redis.url",
        "URL",
        "one server, redis+sentinel:// or redis+cluster:// (default: an embedded Valkey, role single only)",
    ),
    "listen": (DEFAULT_LISTENER, "HOST:PORT", 'where MQTT clients connect; "" for nowhere (default: 127.0.0.1:1883)'),
    "management": ("management.listen", "HOST:PORT", "health, metrics, REST (default: 127.0.0.1:18083)"),
    "name": ("node.name", "NAME", "unique in the cluster (default: the host's name)"),
    "host": ("node.host", "HOST", "the address at which other nodes reach this one (default: 127.0.0.1)"),
    "data-dir": ("node.data_dir", "FOLDER", "where this node keeps files (default: below the user's state folder)"),
    "cluster-listen": ("cluster.listen", "HOST:PORT", "where other nodes connect (default: 127.0.0.1:4370)"),
    "seeds": ("cluster.seeds", "HOST:PORT,…", "cores to ask first"),
    "cluster-key-file": ("cluster.key_file", "FILE", "holds the key that every node of the cluster has"),
    "redis-password-file": ("redis.password_file", "FILE", "holds the password of Redis"),
    "log-format": ("log.format", "FORMAT", "text or json, one line each (default: text)"),
    "log-level": ("log.level", "LEVEL", "debug, info, warning or error (default: info)"),
}
"""Options of `flockmq run` that set one key: option → (key, placeholder of the value, help)."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    try:
        sys.exit(_dispatch(_parser().parse_args(arguments)))
    except UserError as error:
        print(f"flockmq: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def version_line() -> str:
    return f"flockmq {__version__} ({compiled_modules.kind()}, Python {platform.python_version()})"


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line, like all other errors of the command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"flockmq: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="flockmq", description="An MQTT 3.1, 3.1.1 and 5.0 broker cluster.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="show the version, and whether it runs compiled")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run one node",
        description="Run one node until SIGTERM or Ctrl-C.",
        epilog="Precedence: these options, then the environment (FLOCKMQ_LOG__LEVEL is log.level), then the file, "
        "then the defaults.",
        allow_abbrev=False,
    )
    run.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    for option, (_, shape, meaning) in RUN_OPTIONS.items():
        run.add_argument(f"--{option}", metavar=shape, help=meaning)
    run.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="a broker of several processes, role single only: a core, and N replicants behind the same ports; auto: "
        "one for each processor",
    )
    run.add_argument("--log-node", action="store_true", help="each log line names the node")
    run.add_argument(
        "--ready-fd", type=int, metavar="FD", help="write one JSON line with the node's ports there, once it is ready"
    )

    dev = commands.add_parser(
        "dev",
        help="run a whole cluster on this machine",
        description="Run cores and replicants as processes of their own on 127.0.0.1, see a message cross between "
        "them, and stay until Ctrl-C. Without --redis they share an embedded Valkey and keep nothing.",
        allow_abbrev=False,
    )
    dev.add_argument("--cores", type=_count, default=1, metavar="N", help="(default: 1)")
    dev.add_argument("--replicants", type=_count, default=2, metavar="M", help="(default: 2)")
    dev.add_argument("--port", type=int, default=1883, metavar="P", help="replicant i has MQTT at P+i (default: 1883)")
    dev.add_argument(
        "--management-port", type=int, default=18083, metavar="P", help="node i has it at P+i, cores first; 0: any free"
    )
    dev.add_argument("--redis", metavar="URL", help=RUN_OPTIONS["redis"][2])
    dev.add_argument("--once", action="store_true", help="see one message cross, stop, and exit 0 (1 if it didn't)")

    bench_options.add_parser(commands)

    ctl.add_arguments(
        commands.add_parser(
            "ctl",
            help="see a running cluster, manage its users, rules and bans",
            description="See a running cluster, and manage its users, rules and bans, by the management address of any "
            "node.",
            allow_abbrev=False,
        )
    )

    commands.add_parser("version", help="show the version, and whether it runs compiled")
    return parser


NODES_MAX: Final = 32
"""Of each role, in `flockmq dev`."""
AUTO: Final = 0
"""`--workers auto`."""


def _count(text: str, most: int = NODES_MAX, other: str = "") -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 1 to {most}{other}")
    return value


def _workers(text: str) -> int:
    return AUTO if text == "auto" else _count(text, WORKERS_MAX, ", or auto")


def _dispatch(options: argparse.Namespace) -> int:
    if options.version or options.command == "version":
        print(version_line())
        return 0
    if options.command == "run":
        return _run(options)
    if options.command == "dev":
        from flockmq import dev

        logs.configure("text", "info")
        return _until_signalled(
            lambda: dev.run(
                cores=options.cores,
                replicants=options.replicants,
                mqtt_port=options.port,
                management_port=options.management_port,
                redis_url=options.redis,
                once=options.once,
            )
        )
    if options.command == "ctl":
        return ctl.run(options)
    if options.command == "bench":
        from flockmq.bench import command

        return command.run(options)
    _parser().print_help()
    return 2


# --- flockmq run ----------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    loaded = load_all(file=options.config, command_line=_command_line(options))
    config = loaded.config
    logs.configure(config.log.format, config.log.level, config.node.name if options.log_node else "")
    hurry = asyncio.Event()
    tell = partial(_tell_ready, options.ready_fd)
    if options.workers is None:
        return _until_signalled(lambda: _node(loaded, tell, hurry), hurry.set)

    from flockmq import workers

    workers.check(config)
    number = workers.processors() if options.workers == AUTO else options.workers
    own = [at for at in _command_line(options) if at.source[2:] not in workers.OPTIONS]
    file = [f"--config={options.config}"] if options.config is not None else []
    arguments = ["--log-node", *file, *(f"{at.source}={at.value}" for at in own)]
    return _until_signalled(lambda: workers.run(config, number, arguments, tell, hurry), hurry.set)


def _tell_ready(fd: int | None, ports: NodePorts) -> None:
    listeners = ", ".join(f"{name} {port}" if port else name for name, port in ports.listeners.items()) or "no MQTT"
    log.info("ready: %s, cluster link %s, management %s", listeners, ports.link, ports.management)
    if fd is not None:
        try:
            os.write(fd, msgspec.json.encode(ports) + b"\n")
            os.close(fd)
        except OSError as error:  # the reader is gone, but the node serves its clients
            log.warning("--ready-fd: %d can't be written: %s", fd, error.strerror)


def _command_line(options: argparse.Namespace) -> list[Setting]:
    given = ((option, getattr(options, option.replace("-", "_"))) for option in RUN_OPTIONS)
    return [Setting(RUN_OPTIONS[option][0], value, f"--{option}") for option, value in given if value is not None]


async def _node(loaded: Loaded, tell: Callable[[NodePorts], None], hurry: asyncio.Event) -> int:
    from flockmq.node import left_cluster
    from flockmq.node.redis_startup import wait_for_redis
    from flockmq.node.run import run_node
    from flockmq.redis.embedded import embedded_valkey

    settings = loaded.config
    if settings.node.data_dir is not None:
        private_files.tighten(settings.node.data_dir, "*.snapshot")
    if settings.role == "core" and settings.node.data_dir is not None:
        left_cluster.check(settings.node.data_dir)
    async with contextlib.AsyncExitStack() as stack:
        own = None
        if settings.redis.url is None:
            own = await stack.enter_async_context(embedded_valkey(settings.node.data_dir))
            settings = msgspec.structs.replace(settings, redis=msgspec.structs.replace(settings.redis, url=own.url))
        else:
            await wait_for_redis(settings.redis, settings.cluster.name if settings.role != "replicant" else "")
        log.info("%s, role %s, node %s", version_line(), settings.role, settings.node.name)
        end = partial(signal.raise_signal, signal.SIGTERM)
        await run_node(settings, zone_keys=loaded.zone_keys, ready=tell, own_redis=own, hurry=hurry, end=end)
    return 0


def _until_signalled(main: Callable[[], Coroutine[None, None, int]], hurry: Callable[[], None] = ignore) -> int:
    """Run `main` on uvloop. The first SIGTERM or SIGINT cancels it, so that it cleans up, and the exit code is 0. A
    second signal calls `hurry`. If a vital task fails, the process exits at once."""

    async def supervised() -> int:
        tasks.end_process_on_failure(asyncio.get_running_loop())
        task = asyncio.ensure_future(main())
        end = _ending_once(task, hurry)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end)
        try:
            return await task
        except asyncio.CancelledError:
            return 0

    return uvloop.run(supervised())


def _ending_once(task: asyncio.Task[int], hurry: Callable[[], None]) -> Callable[[], None]:
    """A signal handler that cancels the task on the first signal only, so that later ones don't interrupt its clean-up.
    `task.cancelling()` isn't used, because it is also true while a timeout inside the task expires."""
    is_ending = False

    def end() -> None:
        nonlocal is_ending
        if is_ending:
            hurry()
        else:
            is_ending = True
            task.cancel()

    return end
