"""Closed loop: one publisher, one subscriber, one message in flight, blocking sockets.

A sample is the time from the publisher's write to the subscriber's complete read. At QoS 1 and 2 both complete their
exchanges before the next message, so acknowledgements of one message never overlap with the next.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from flockmq.bench.errors import Failed
from flockmq.bench.link import BenchLink, connect, subscribe
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget
from flockmq.mqtt import encode, frame

PERCENTILES: Final = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}


def measure(plan: Plan, publish_to: BenchTarget, subscribe_at: BenchTarget) -> Sample:
    """Percentiles of the latency in µs. Uses the plan's QoS, payload, times and prefix."""
    topic, payload = f"{plan.prefix}/latency", b"x" * plan.payload_bytes
    with contextlib.ExitStack() as stack:
        subscriber = stack.enter_context(contextlib.closing(connect(subscribe_at, f"{plan.prefix}-subscriber")))
        subscribe(subscriber, [topic], plan.qos)
        publisher = stack.enter_context(contextlib.closing(connect(publish_to, f"{plan.prefix}-publisher")))
        time.sleep(plan.settle_s)
        start = time.perf_counter() + plan.warmup_s
        end, samples, packet_id = start + plan.duration_s, list[float](), 0
        while not samples or time.perf_counter() < end:
            packet_id = packet_id % 0xFFFF + 1 if plan.qos else 0
            packet = encode.publish(frame.V311, topic.encode(), payload, qos=plan.qos, packet_id=packet_id)
            sent, received = _round_trip(publisher, subscriber, packet, plan.qos, packet_id, len(payload))
            if sent >= start:
                samples.append(received - sent)
    return percentiles(samples)


def percentiles(samples: list[float]) -> Sample:
    """Percentiles in µs of at least one time in seconds."""
    samples = sorted(samples)
    figures = {name: samples[int(len(samples) * share)] * 1e6 for name, share in PERCENTILES.items()}
    return figures | {"max_us": samples[-1] * 1e6, "samples": len(samples)}


def _round_trip(
    publisher: BenchLink, subscriber: BenchLink, packet: bytes, qos: int, packet_id: int, payload_bytes: int
) -> tuple[float, float]:
    """When the message was sent and when it was received. All acknowledgements are complete when this returns."""
    framed = publisher.framed(packet)
    sent = time.perf_counter()
    publisher.send(framed)
    # The broker may wait for PUBREL before it delivers [MQTT-4.3.3], so that part of the exchange is included.
    if qos == 2:
        _expect(publisher, frame.PUBREC)
        publisher.write(encode.pub_ack(frame.PUBREL, frame.V311, packet_id))
    arrived = subscriber.read(len(packet))
    received = time.perf_counter()
    if arrived[0] != packet[0] or arrived[-payload_bytes:] != packet[-payload_bytes:]:
        raise Failed(f"{subscriber.target}: {arrived[:16].hex(' ')} arrived where the message was awaited")
    delivered_id = int.from_bytes(arrived[-payload_bytes - 2 : -payload_bytes], "big")
    if qos == 1:
        subscriber.write(encode.pub_ack(frame.PUBACK, frame.V311, delivered_id))
        _expect(publisher, frame.PUBACK)
    elif qos == 2:
        _expect(publisher, frame.PUBCOMP)
        subscriber.write(encode.pub_ack(frame.PUBREC, frame.V311, delivered_id))
        _expect(subscriber, frame.PUBREL)
        subscriber.write(encode.pub_ack(frame.PUBCOMP, frame.V311, delivered_id))
    return sent, received


def _expect(link: BenchLink, packet_type: int) -> None:
    ack = link.read(4)
    if ack[0] >> 4 != packet_type:
        raise Failed(f"{link.target}: {ack.hex(' ')} arrived where packet type {packet_type} was awaited")
