"""A day of a fleet, as `ingest` would have left it: Parquet files and a manifest; and what a report must say of it.

- Connects follow the sun; in the morning all devices come back at once, STORM_PER_S a second for STORM_S.
- One node dies at noon: its numbers begin anew. At the same hour a rolling upgrade adds columns: files of the hours
  before lack them.
- Each node loses events every hour, a half of them for want of room.

The truth is counted from the same arrays, by numpy, before they are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from flockmq_analytics.manifest import DataFile, Manifest
from pyspark_flockmq.events import STREAMS

DAY: Final = date(2026, 11, 19)
HOUR_MS: Final = 3_600_000
MIDNIGHT_MS: Final = int(datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp() * 1000)
NODES: Final = tuple(f"fleet-replicant-{number}" for number in range(4))
DIES: Final = NODES[2]
CHANGES_AT_HOUR: Final = 12
ADDED_COLUMNS: Final = ("messages_in", "messages_out")
DEVICES: Final = 1_000_000
ADDRESSES: Final = 65_536
BATCH: Final = 1_000
STORM_HOUR: Final = 7
STORM_S: Final = 60
STORM_PER_S: Final = 20_000
EVENTS_MIN: Final = 5 * STORM_S * STORM_PER_S
LOST_MAX: Final = 5_000
SAMPLE_EVERY_MS: Final = 10_000
SHARDS: Final = ("cluster", "route", "retained", "auth")
SUN: Final = 1 + 0.8 * np.sin((np.arange(24) - 8) / 24 * 2 * np.pi)
"""What an hour has, where 1 is its share."""

KINDS: Final = ("connected", "disconnected", "taken_over")
KIND_SHARES: Final = (0.49, 0.49, 0.02)
CONNECTED, DISCONNECTED, TAKEN_OVER = range(3)
REASONS: Final = np.array([0x00, 0x04, 0x80, 0x8B, 0x8E, 0x98], np.int32)
ENDED_BY: Final = ("client", "server", "network")
LENGTH_BOUNDS_MS: Final = np.array([0, 1, 10, 60, 600, 3_600, 14_400, 86_400]) * 1000
REFUSED_SHARE: Final = 0.002
BAD_PASSWORD: Final = 0x86


@dataclass
class Truth:
    """What is exact in a report."""

    connections: int = 0
    refusals: int = 0
    minutes: Any = field(default_factory=lambda: np.zeros((24 * 60, 5), np.int64))
    """Of each: connects, disconnects, abnormal ones, takeovers, refusals."""
    hours: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    hour_clients: dict[tuple[int, str], int] = field(default_factory=dict)
    """Distinct ones, exactly; a report knows them within 2 %."""
    reasons: Any = field(default_factory=lambda: np.zeros((len(ENDED_BY), 256), np.int64))
    lengths: Any = field(default_factory=lambda: np.zeros(len(LENGTH_BOUNDS_MS), np.int64))
    came: Any = field(default_factory=lambda: np.zeros(DEVICES, bool))
    connects_of: Any = field(default_factory=lambda: np.zeros(DEVICES, np.int32))
    lost: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By node: events, those of them that found no room, gaps."""


def make(folder: Path, events: int, seed: int) -> Truth:
    """Of so many connection events, EVENTS_MIN at least."""
    assert events >= EVENTS_MIN, f"a day with its storm has {EVENTS_MIN} events at least"
    random, truth, manifest = np.random.default_rng(seed), Truth(), Manifest(number=1)
    usual = SUN * (events - STORM_S * STORM_PER_S) / SUN.sum()
    next_number, shed = dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)
    for hour in range(24):
        for index, node in enumerate(NODES):
            incarnation = f"{node}@{1 + (node == DIES and hour >= CHANGES_AT_HOUR)}"
            if node == DIES and hour == CHANGES_AT_HOUR:
                next_number[node] = shed[node] = 0
            elif hour:
                _lose(truth, random, node, next_number, shed)
            times = _times(random, hour, round(usual[hour] / len(NODES)))
            numbers = next_number[node] + np.arange(len(times))
            next_number[node] += len(times)
            table = _connections(truth, random, hour, node, times)
            table |= _where(node, incarnation, numbers, shed[node], times, index)
            if hour < CHANGES_AT_HOUR:
                for name in ADDED_COLUMNS:
                    del table[name]
            _write(folder, manifest, "connections", f"{hour:02}-{index}", table)
            refusals = _times(random, hour, round(usual[hour] * REFUSED_SHARE), with_storm=False)
            numbers = hour * 10_000_000 + np.arange(len(refusals))  # Each hour is an incarnation of its own.
            table = _refusals(truth, random, hour, node, refusals)
            table |= _where(node, f"{incarnation}-{hour}", numbers, 0, refusals, index)
            _write(folder, manifest, "refusals", f"{hour:02}-{index}", table)
    for index, node in enumerate(NODES):
        _write(folder, manifest, "nodes", f"{index}", _node_samples(random, node, index))
        _write(folder, manifest, "lag", f"{index}", _lag_samples(random, node, index))
    manifest.changed[str(DAY)] = 1
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return truth


def _lose(truth: Truth, random: Any, node: str, next_number: dict[str, int], shed: dict[str, int]) -> None:
    lost = int(random.integers(2, LOST_MAX))
    next_number[node] += lost
    shed[node] += lost // 2
    before = truth.lost.get(node, (0, 0, 0))
    truth.lost[node] = before[0] + lost, before[1] + lost // 2, before[2] + 1


def _times(random: Any, hour: int, usual: int, *, with_storm: bool = True) -> Any:
    """Milliseconds of one node's events of one hour, in order."""
    times = random.integers(0, HOUR_MS, usual)
    if hour == STORM_HOUR and with_storm:
        storm = random.integers(0, STORM_S * 1000, STORM_S * STORM_PER_S // len(NODES))
        times = np.concatenate([times, HOUR_MS // 2 + storm])
    return np.sort(times) + MIDNIGHT_MS + hour * HOUR_MS


def _connections(truth: Truth, random: Any, hour: int, node: str, times: Any) -> dict[str, Any]:
    n = len(times)
    kinds = random.choice(len(KINDS), n, p=KIND_SHARES).astype(np.int8)
    in_storm = (times % HOUR_MS >= HOUR_MS // 2) & (times % HOUR_MS < HOUR_MS // 2 + STORM_S * 1000)
    if hour == STORM_HOUR:
        kinds[in_storm] = CONNECTED
    devices = random.integers(0, DEVICES, n).astype(np.int32)
    ended = kinds == DISCONNECTED
    reasons = REASONS[random.integers(0, len(REASONS), n)]
    enders = random.integers(0, len(ENDED_BY), n).astype(np.int8)
    lasted = np.minimum(random.lognormal(12, 2.5, n), 1e11).astype(np.int64)
    abnormal = ended & (reasons >= 0x80)
    minutes = (times - MIDNIGHT_MS) // 60_000
    columns = kinds == CONNECTED, ended, abnormal, kinds == TAKEN_OVER
    for column, chosen in enumerate(columns):
        truth.minutes[:, column] += np.bincount(minutes[chosen], minlength=24 * 60)
    truth.connections += n
    truth.hours[hour, node] = tuple(int(np.count_nonzero(chosen)) for chosen in columns)
    truth.hour_clients[hour, node] = len(np.unique(devices))
    truth.came[devices] = True
    truth.connects_of += np.bincount(devices[kinds == CONNECTED], minlength=DEVICES).astype(np.int32)
    for ender in range(len(ENDED_BY)):
        truth.reasons[ender] += np.bincount(reasons[ended & (enders == ender)], minlength=256)
    bounds = np.searchsorted(LENGTH_BOUNDS_MS, lasted[ended], side="right") - 1
    truth.lengths += np.bincount(bounds, minlength=len(LENGTH_BOUNDS_MS))
    return {
        "kind": _of(kinds, KINDS),
        "client_id": _of(devices, _DEVICE_IDS),
        "reason_code": pa.array(reasons, mask=~ended),
        "ended_by": _of(enders, ENDED_BY, mask=~ended),
        "protocol_version": pa.array(np.full(n, 5, np.int32)),
        "listener": _of(np.zeros(n, np.int8), ("tcp:1883",)),
        "address": _of((devices % ADDRESSES).astype(np.int32), _ADDRESSES),
        "duration_ms": pa.array(lasted, mask=~ended),
        **{name: pa.array(lasted // 1000, mask=~ended) for name in ("bytes_in", "bytes_out", *ADDED_COLUMNS)},
    }


def _refusals(truth: Truth, random: Any, hour: int, node: str, times: Any) -> dict[str, Any]:
    n = len(times)
    truth.refusals += n
    truth.minutes[:, 4] += np.bincount((times - MIDNIGHT_MS) // 60_000, minlength=24 * 60)
    truth.hours[hour, node] = *truth.hours[hour, node], n
    sources = random.integers(0, 50, n).astype(np.int32)
    return {
        "client_id": _of(random.integers(0, DEVICES, n).astype(np.int32), _DEVICE_IDS),
        "reason_code": pa.array(np.full(n, BAD_PASSWORD, np.int32)),
        "protocol_version": pa.array(np.full(n, 5, np.int32)),
        "listener": _of(np.zeros(n, np.int8), ("tcp:1883",)),
        "address": _of(sources, _ADDRESSES),
    }


def _node_samples(random: Any, node: str, index: int) -> dict[str, Any]:
    times = MIDNIGHT_MS + np.arange(0, 24 * HOUR_MS, SAMPLE_EVERY_MS)
    n = len(times)
    connected = np.round(SUN[(times - MIDNIGHT_MS) // HOUR_MS] * DEVICES / 2 / len(NODES)).astype(np.int64)
    gauges = dict.fromkeys(("connections", "sessions", "durable_sessions"), connected)
    counters = {
        name: pa.array(gauges.get(name, np.cumsum(random.integers(0, 1_000, n))))
        for name, type in STREAMS["nodes"].own
        if type.sql == "BIGINT"
    }
    samples = {"role": _of(np.zeros(n, np.int8), ("replicant",)), "version": _of(np.zeros(n, np.int8), ("1",))}
    return {
        **samples,
        "ready": pa.array(np.ones(n, bool)),
        **counters,
        **_where(node, f"{node}@1", np.arange(n), 0, times, index),
    }


def _lag_samples(random: Any, node: str, index: int) -> dict[str, Any]:
    times = MIDNIGHT_MS + np.repeat(np.arange(0, 24 * HOUR_MS, SAMPLE_EVERY_MS), len(SHARDS))
    n = len(times)
    zeros = ("bootstraps", "bootstrap_ms", "bootstrap_rows", "unapplied", "replaying")
    return {
        "shard": _of(np.tile(np.arange(len(SHARDS), dtype=np.int8), n // len(SHARDS)), SHARDS),
        "lag_entries": pa.array(random.geometric(0.1, n)),
        "lag_ms": pa.array(random.geometric(0.01, n)),
        **{name: pa.array(np.zeros(n, np.int64)) for name in zeros},
        **_where(node, f"{node}@1", np.arange(n), 0, times, index),
    }


def _where(node: str, incarnation: str, numbers: Any, shed: int, times: Any, index: int) -> dict[str, Any]:
    """What all events have: whose they are, and where they stood in their stream."""
    n = len(times)
    batches = np.arange(n) // BATCH
    ids = [f"{times[start]}-{index}" for start in range(0, n, BATCH)]
    zeros = np.zeros(n, np.int8)
    return {
        "entry_id": _of(batches.astype(np.int32), tuple(ids)),
        "position": pa.array((np.arange(n) % BATCH).astype(np.int32)),
        "at": pa.array(times * 1000, pa.timestamp("us", tz="UTC")),
        "node": _of(zeros, (node,)),
        "incarnation": _of(zeros, (incarnation,)),
        "number": pa.array(numbers),
        "shed": pa.array(np.full(n, shed, np.int64)),
    }


def _of(codes: Any, names: Any, mask: Any = None) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=mask), pa.array(names, pa.string()))


_DEVICE_IDS: Final = pa.array([f"device-{number:07}" for number in range(DEVICES)])
_ADDRESSES: Final = pa.array([f"10.{number >> 8}.{number & 255}.7" for number in range(ADDRESSES)])


def _write(folder: Path, manifest: Manifest, stream: str, name: str, columns: dict[str, Any]) -> None:
    day = folder / stream / f"date={DAY}"
    day.mkdir(parents=True, exist_ok=True)
    order = [column for column in STREAMS[stream].ddl.replace(",", "").split()[::2] if column in columns]
    table = pa.table({column: columns[column] for column in order})
    pq.write_table(table, day / f"{name}.parquet", compression="zstd")
    manifest.files.setdefault(stream, {}).setdefault(str(DAY), []).append(DataFile(f"{name}.parquet", table.num_rows))
