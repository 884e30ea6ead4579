"""By hand: the nightly report of a day with very many events, beside DuckDB on the same files.

    .venv/bin/python tests/bench/big_report.py --events 86000000 --folder /var/tmp/day

Every count is held against what was put in. It prints processor time, wall time and the most memory of each; the first
line of the report is with the files' compaction, the second without. 86 million need 6 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from flockreport import day, duck

from flockmq_analytics.manifest import Manifest

SKETCH_WITHIN: Final = 0.02
POLL_S: Final = 0.2
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    memory_mib: float
    """The most that it and its children had at once."""


def measured(command: list[str]) -> Cost:
    """Raises CalledProcessError."""
    began = time.monotonic()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most, cpu_of = 0, dict[int, float]()
    while True:
        family = [*_family(running.pid)]
        most = max(most, sum(map(_memory_kib, family)))
        cpu_of |= {pid: spent for pid in family if (spent := _cpu_s(pid))}
        try:
            code = running.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            continue
    if code:
        raise subprocess.CalledProcessError(code, command)
    return Cost(time.monotonic() - began, sum(cpu_of.values()), most / 1024)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _memory_kib(pid: int) -> int:
    """What processes share is counted once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _cpu_s(pid: int) -> float:
    """But for that of its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def wrong(folder: Path, truth: day.Truth) -> list[str]:
    """What the report says that isn't so."""
    report = folder / f"reports/date={day.DAY}"

    def rows(table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.ParquetFile(report / f"{table}.parquet").read().to_pylist()
        return found

    said: list[str] = []

    def same(what: str, told: object, true: object) -> None:
        if told != true:
            said.append(f"{what}: {told}, and it is {true}")

    names = ("connects", "disconnects", "abnormal", "takeovers", "refused")
    minutes = {
        row["minute"].hour * 60 + row["minute"].minute: tuple(row[name] for name in names) for row in rows("minutes")
    }
    for minute, counts in enumerate(truth.minutes.tolist()):
        same(f"minute {minute}", minutes.get(minute, (0,) * 5), tuple(counts))
    for row in rows("hours"):
        key = row["hour"].hour, row["node"]
        same(f"hour {key}", tuple(row[name] for name in names), truth.hours[key])
        clients = truth.hour_clients[key]
        if abs(row["clients"] - clients) > SKETCH_WITHIN * clients:
            said.append(f"hour {key}: {row['clients']} clients, and there were {clients}")
    (arrivals,) = rows("arrivals")
    same("clients", arrivals["clients"], int(truth.came.sum()))
    connects = sum(row["connects"] for row in rows("clients"))
    same("connects of all clients", connects, int(truth.connects_of.sum()))
    reasons = {(row["ended_by"], row["reason_code"]): row["disconnects"] for row in rows("reasons")}
    for ender, name in enumerate(day.ENDED_BY):
        for reason in day.REASONS.tolist():
            same(f"{name} {reason:#x}", reasons.get((name, reason), 0), int(truth.reasons[ender, reason]))
    lengths = {row["from_s"] * 1000: row["sessions"] for row in rows("lengths")}
    for bound, sessions in zip(day.LENGTH_BOUNDS_MS.tolist(), truth.lengths.tolist(), strict=True):
        same(f"as long as {bound} ms", lengths.get(bound, 0), sessions)
    losses = {row["node"]: (row["lost"], row["shed"], row["gaps"]) for row in rows("losses")}
    same("losses", losses, truth.lost)
    same("storms", len(rows("storms")), 1)
    return said


def main() -> int:
    options = parser().parse_args()
    folder: Path = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    truth = day.make(folder, options.events, options.seed)
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 2**20
    print(f"{truth.connections + truth.refusals:,} events, {size:,.0f} MiB", flush=True)
    program = str(Path(sys.executable).with_name("flockmq-analytics"))
    report = [program, "report", "--output", str(folder), "--cores", str(options.cores), "--memory", options.memory]
    report += ["--day", str(day.DAY)]
    told("report and compaction", measured(report))
    ours = told("report", measured(report))
    _leave_what_counts(folder)
    peer = told("DuckDB", measured([sys.executable, duck.__file__, str(folder), str(options.cores)]))
    print(f"report / DuckDB: {ours.wall_s / peer.wall_s:.2f}")
    said = wrong(folder, truth)
    print(f"wrong: {len(said)}", *said[:10], sep="\n  ")
    return int(bool(said))


def told(name: str, cost: Cost) -> Cost:
    print(f"{name:22} {cost.wall_s:7.1f} s  {cost.cpu_s:7.1f} s of CPU  {cost.memory_mib:6.0f} MiB", flush=True)
    return cost


def _leave_what_counts(folder: Path) -> None:
    """Files that were compacted stay for an hour; DuckDB is given all that is there."""
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    for stream, days in manifest.files.items():
        kept = {file.name for files in days.values() for file in files}
        for path in (folder / stream).rglob("*.parquet"):
            if path.name not in kept:
                path.unlink()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="The report of a big day.")
    made.add_argument("--events", type=int, default=10_000_000)
    made.add_argument("--folder", type=Path, default=Path("build/day"))
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--cores", type=int, default=2)
    made.add_argument("--memory", default="2g")
    return made


if __name__ == "__main__":
    sys.exit(main())
