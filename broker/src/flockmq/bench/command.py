"""`flockmq bench`: runs a measurement as the options say, and prints the results as text or JSON."""

from __future__ import annotations

import argparse
import gc
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flockmq.bench import connects, idle, latency, multi_process, subscribes, target, throughput
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget
from flockmq.errors import ConfigError

FILES_BESIDES: Final = 64
"""Open files in addition to connections."""
PASSWORD_MAX_BYTES: Final = 4096


def run(options: argparse.Namespace) -> int:
    """Run the measurement and print its results. Raises UserError."""
    password = None if options.password_file is None else _password(options.password_file)
    where = target.parse(
        options.url, username=options.username, password=password, cafile=options.cafile, insecure=options.insecure
    )
    gc.disable()  # A pause would be measured as the broker's; nothing here creates reference cycles.
    sample = MEASUREMENTS[options.measurement](options, where)
    print(json.dumps(sample) if options.json else "\n".join(_lines(options, where, sample)))
    return 0


def _password(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(PASSWORD_MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--password-file {file}: can't be read: {error}") from None


def _allow_files(connections: int) -> None:
    """Raise the limit of open files as far as needed. Raises ConfigError."""
    wanted = connections + FILES_BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < wanted:
        raise ConfigError(
            f"{connections} connections need {wanted} open files, {hard} are allowed: ulimit -Hn {wanted}"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- measurements -----------------------------------------------------------------------------------------------------


def _plan(options: argparse.Namespace, prefix: str) -> Plan:
    plan = Plan(
        publishers=options.publishers,
        subscribers=options.subscribers,
        fan=options.fan,
        topics=options.topics,
        wildcard=options.wildcard,
        filters=options.filters,
        qos=options.qos,
        payload_bytes=options.payload,
        window=options.window or (100 if options.qos else 8192),
        batch=options.batch,
        lasting=options.lasting,
        warmup_s=options.warmup,
        duration_s=options.seconds,
        settle_s=options.settle,
        prefix=prefix,
    )
    plan.check()
    return plan


def _subscribe_at(options: argparse.Namespace, where: BenchTarget) -> BenchTarget:
    if options.subscribe_at is None:
        return where
    password = None if where.password is None else where.password.decode()
    return target.parse(
        options.subscribe_at,
        username=options.username,
        password=password,
        cafile=options.cafile,
        insecure=options.insecure,
    )


def _throughput(options: argparse.Namespace, where: BenchTarget) -> Sample:
    subscribe_at = _subscribe_at(options, where)
    _plan(options, options.prefix)
    _allow_files(options.publishers + options.subscribers + options.filters // throughput.FILTERS_PER_CONNECTION + 1)

    def measure(index: int, ready: Callable[[], None]) -> Sample:
        prefix = f"{options.prefix}{index}" if options.processes > 1 else options.prefix
        pids = options.pid if index == 0 else []
        return throughput.measure(_plan(options, prefix), where, subscribe_at, pids, ready)

    return multi_process.run(options.processes, measure)


def _latency(options: argparse.Namespace, where: BenchTarget) -> Sample:
    plan = Plan(
        qos=options.qos,
        payload_bytes=options.payload,
        warmup_s=options.warmup,
        duration_s=options.seconds,
        settle_s=options.settle,
        prefix=options.prefix,
    )
    return latency.measure(plan, where, _subscribe_at(options, where))


def _connects(options: argparse.Namespace, where: BenchTarget) -> Sample:
    _allow_files(options.inflight)

    def measure(index: int, ready: Callable[[], None]) -> Sample:
        plan = Plan(warmup_s=options.warmup, duration_s=options.seconds, prefix=f"{options.prefix}{index}")
        return connects.measure(plan, where, options.inflight, options.pid if index == 0 else [], ready)

    return multi_process.run(options.processes, measure)


def _subscribes(options: argparse.Namespace, where: BenchTarget) -> Sample:
    plan = Plan(qos=options.qos, warmup_s=options.warmup, duration_s=options.seconds, prefix=options.prefix)
    return subscribes.measure(plan, where)


def _idle(options: argparse.Namespace, where: BenchTarget) -> Sample:
    _allow_files(options.connections)
    return idle.measure(
        where, options.connections, options.qos, options.prefix, options.limit, options.hold, options.pid
    )


MEASUREMENTS: Final[dict[str, Callable[[argparse.Namespace, BenchTarget], Sample]]] = {
    "throughput": _throughput,
    "latency": _latency,
    "connects": _connects,
    "subscribes": _subscribes,
    "idle": _idle,
}


# --- text output ------------------------------------------------------------------------------------------------------


def _lines(options: argparse.Namespace, where: BenchTarget, sample: Sample) -> list[str]:
    lines = [f"{where}: {options.measurement}, {_shape(options)}"]
    lines += [f"  {line}" for line in FIGURES[options.measurement](sample)]
    if "client_busy" in sample:
        lines.append(f"  the load's own processor: {sample['client_busy']:.0%} busy{_advice(options, sample)}")
    if "broker_busy" in sample:
        memory = sample["resident_bytes"] / 2**20
        lines.append(
            f"  the broker's processes: {sample['broker_busy']:.0%} of a core, {sample.get('cpu_us', 0.0):,.3g} µs "
            f"each, {memory:,.0f} MiB resident"
        )
    return lines


def _shape(options: argparse.Namespace) -> str:
    if options.measurement == "connects":
        return f"{options.inflight} at a time"
    if options.measurement in ("idle", "subscribes"):
        return f"QoS {options.qos} subscriptions"
    message = f"QoS {options.qos}, {options.payload:,} B"
    if options.measurement == "latency":
        return message
    times = f" × {options.processes} processes" if options.processes > 1 else ""
    kind = "each to each" if options.fan else "in pairs"
    return f"{options.publishers:,} → {options.subscribers:,} {kind}, {options.topics:,} topics, {message}{times}"


def _advice(options: argparse.Namespace, sample: Sample) -> str:
    if sample["client_busy"] < 0.95:
        return ""
    return "; it may be what limits the figure" + ("; try --processes" if "processes" in options else "")


def _throughput_lines(sample: Sample) -> list[str]:
    flaws = ", ".join(f"{sample[name]:,.0f} {name}" for name in ("lost", "repeated", "late"))
    return [f"{sample['rate']:,.0f} messages a second ({sample['delivered']:,.0f} counted; {flaws})"]


def _latency_lines(sample: Sample) -> list[str]:
    return [
        f"p50 {sample['p50_us']:,.1f} µs   p99 {sample['p99_us']:,.1f} µs   p99.9 {sample['p999_us']:,.1f} µs   "
        f"max {sample['max_us']:,.1f} µs   ({sample['samples']:,.0f} round trips)"
    ]


def _connects_lines(sample: Sample) -> list[str]:
    return [f"{sample['rate']:,.0f} connects a second ({sample['connects']:,.0f} counted)"]


def _idle_lines(sample: Sample) -> list[str]:
    cost = f", {sample['kib']:,.2f} KiB each" if "kib" in sample else ""
    return [f"{sample['connections']:,.0f} connections{cost} (opened at {sample['rate']:,.0f} a second)"]


FIGURES: Final[dict[str, Callable[[Sample], list[str]]]] = {
    "throughput": _throughput_lines,
    "latency": _latency_lines,
    "connects": _connects_lines,
    "subscribes": _latency_lines,
    "idle": _idle_lines,
}
