"""What FlockMQ is held to by itself: memory and time of its index, and how long it pauses with much to hold.

Sessions outlive their connections here, so that a machine's limit of open files doesn't bound their number.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from flockbench import ours
from flockbench.brokers import Running, Site, pinned, started
from flockbench.errors import Failed
from flockbench.load import Sample
from flockbench.packages import step
from flockbench.shapes import Metric, Shape
from flockmq.bench import link, target
from flockmq.bench.link import BenchLink
from flockmq.errors import UserError
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, SubscribeEntry

FILTERS: Final = 1_000_000
SHAPES: Final = 100_000
SESSIONS: Final = 100_000
SESSIONS_AT_ONCE: Final = 100
RETAINED: Final = 1_000_000
RETAINED_BATCH: Final = 250
RETAINED_WINDOW: Final = 1000
"""Unacknowledged at most."""
RETAINED_MAX_S: Final = 240.0
TELL_MAX_S: Final = 30.0
QUICK_SHARE: Final = 10
"""A quick run has a tenth of everything."""

ALONE: Final = Shape(
    "alone",
    (),
    (
        Metric("filter_bytes", "a wildcard filter in the index, of 1,000,000", "B", False),
        Metric("match_us", "a match among them, nothing cached", "µs", False),
        Metric("crowded_ratio", "the same beside filters of 100,000 other shapes", "×", False),
        Metric("collection_ms", "longest garbage collection, 100,000 sessions", "ms", False),
        Metric("retained_pause_ms", "longest pause of the loop, 1,000,000 retained messages sent to `#`", "ms", False),
        Metric("retained_rate", "retained messages sent to `#`", "msg/s"),
    ),
    quick=True,
)


def measure(kind: str, cache: Path, core: int, site: Callable[[], Site], quick: bool) -> Iterator[Sample]:
    """Each part's figures as soon as they are there. Raises Failed or Missing for the part that couldn't be taken."""
    share = QUICK_SHARE if quick else 1
    installed = ours.broker(kind, watched=True).install(cache)
    yield _index(kind, cache, core, FILTERS // share, SHAPES // share)
    with started(installed.launch, site(), core) as running:
        yield _sessions(running, SESSIONS // share)
    with started(installed.launch, site(), core) as running:
        yield _retained(running, RETAINED // share)


def _index(kind: str, cache: Path, core: int, filters: int, shapes: int) -> Sample:
    program = Path(__file__).with_name("index.py")
    command = ours.command(str(program), str(filters), str(shapes))
    sample: Sample = json.loads(step(list(pinned(core, command)), ours.stage(cache, kind)))
    return sample


def _sessions(running: Running, count: int) -> Sample:
    """The longest collection while sessions with a subscription each come, stay, and a tenth of them come back."""
    with told():
        where = target.parse(f"mqtt://127.0.0.1:{running.site.mqtt}")
        pauses(running)
        for first in range(0, count, SESSIONS_AT_ONCE):
            _visit(where, range(first, first + SESSIONS_AT_ONCE))
        for first in range(0, count // 10, SESSIONS_AT_ONCE):
            _visit(where, range(first, first + SESSIONS_AT_ONCE))
        return {"collection_ms": pauses(running)["collection_ms"]}


def _visit(where: target.BenchTarget, numbers: range) -> None:
    """Sessions that stay: connected, subscribed, and left."""
    links = []
    for number in numbers:
        each = BenchLink(where)
        client_id = b"session-%06d" % number
        each.write(encode.connect(Connect(frame.V311, client_id, clean_start=False)))
        each.write(encode.subscribe(frame.V311, 1, [SubscribeEntry(b"sessions/%06d/+" % number, 1)]))
        links.append(each)
    for each in links:
        link.finish(each)
        each.read_packet()
        each.close()


def _retained(running: Running, count: int) -> Sample:
    """The longest pause while one client gets all retained messages, and how fast it gets them."""
    with told():
        where = target.parse(f"mqtt://127.0.0.1:{running.site.mqtt}")
        published = _publish_retained(where, count)
        reader = link.connect(where, "reader")
        pauses(running)
        reader.write(encode.subscribe(frame.V311, 1, [SubscribeEntry(b"#", 0)]))
        start = time.perf_counter()
        _read_publishes(reader, published)
        elapsed = time.perf_counter() - start
        pause = pauses(running)["loop_ms"]
        reader.close()
        if published < count:
            raise Failed(f"{published:,} of {count:,} retained messages were taken within {RETAINED_MAX_S:.0f} s")
        return {"retained_pause_ms": pause, "retained_rate": published / elapsed}


def _publish_retained(where: target.BenchTarget, count: int) -> int:
    """How many were acknowledged within RETAINED_MAX_S; at QoS 1, so that the log has them."""
    publisher = link.connect(where, "publisher")
    end = time.perf_counter() + RETAINED_MAX_S
    sent = done = 0
    while done < count and time.perf_counter() < end:
        while sent < count and sent - done < RETAINED_WINDOW:
            batch = range(sent, min(sent + RETAINED_BATCH, count))
            publisher.write(b"".join(_retained_packet(number) for number in batch))
            sent = batch.stop
        batch = range(done, min(done + RETAINED_BATCH, count))
        publisher.read(4 * len(batch))
        done = batch.stop
    publisher.close()
    return done


def _retained_packet(number: int) -> bytes:
    topic = b"retained/%03d/%06d" % (number % 1000, number)
    return encode.publish(
        frame.V311, topic, b"%07d" % number, qos=1, retain=True, packet_id=number % RETAINED_WINDOW + 1
    )


def _read_publishes(reader: BenchLink, count: int) -> None:
    """Read until so many PUBLISH packets have come; they and the SUBACK are shorter than 128 bytes."""
    buffer = bytearray(1 << 18)
    view, kept, seen = memoryview(buffer), 0, 0
    while seen < count:
        received = reader.receive_into(view[kept:])
        if not received:
            raise Failed(f"{seen:,} of {count:,} retained messages arrived, then nothing for {link.ANSWER_MAX_S} s")
        end, at = kept + received, 0
        while end - at >= 2 and end - at >= 2 + buffer[at + 1]:
            seen += buffer[at] >> 4 == frame.PUBLISH
            at += 2 + buffer[at + 1]
        kept = end - at
        buffer[:kept] = buffer[at:end]


def pauses(running: Running) -> Sample:
    """What the watch has seen since it was last asked."""
    file = running.folder / "pauses"
    known = len(file.read_text().splitlines()) if file.exists() else 0
    os.kill(running.pid, signal.SIGUSR1)
    deadline = time.monotonic() + TELL_MAX_S
    while time.monotonic() < deadline:
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        if len(lines) > known and lines[-1].endswith("\n"):
            pauses: Sample = json.loads(lines[-1])
            return pauses
        time.sleep(0.01)
    raise Failed(f"the broker told no pauses within {TELL_MAX_S:.0f} s")


@contextlib.contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except UserError as why:
        raise Failed(str(why)) from None
