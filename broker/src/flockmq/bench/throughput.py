"""Throughput: publishers keep a window of messages in flight, and subscribers check each message.

The result is the number of deliveries during the measured time, which begins after the warm-up and is longer for a slow
broker. Then the publishers stop, and messages in flight must still arrive: those that don't within QUIET_S are lost.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable
from typing import Final

from flockmq.bench import broker_usage, message_ring
from flockmq.bench.inbox import BenchInbox, Tally
from flockmq.bench.link import BenchLink, ask, connect, forget, granted, subscribe
from flockmq.bench.message_ring import MessageRing
from flockmq.bench.outbox import BenchOutbox
from flockmq.bench.plan import Plan, Sample
from flockmq.bench.target import BenchTarget

QUIET_S: Final = 2.0
DRAIN_MAX_S: Final = 3.0
PATIENCE: Final = 4.0
PATIENCE_MIN_S: Final = 2.0
TURN_MAX_S: Final = 0.01
READ_EVERY_MESSAGES: Final = 64
"""Messages that each publisher may write before its subscribers are read."""
FILTERS_PER_PACKET: Final = 500
FILTERS_PER_CONNECTION: Final = 20_000


def measure(
    plan: Plan, publish_to: BenchTarget, subscribe_at: BenchTarget, pids: list[int], ready: Callable[[], None]
) -> Sample:
    """Run the plan. `ready` is called when all clients are connected and subscribed; it may wait for
    other processes.
    """
    with contextlib.ExitStack() as stack:
        run = _set_up(plan, publish_to, subscribe_at, stack)
        ready()
        time.sleep(plan.settle_s)
        run.turn_for(plan.warmup_s, 1)
        family = broker_usage.family(pids)
        delivered, client_s, broker_s = run.tally.delivered, time.process_time(), broker_usage.cpu_s(family)
        elapsed = run.turn_for(plan.duration_s, 2)
        delivered = run.tally.delivered - delivered
        client_s, broker_s = time.process_time() - client_s, broker_usage.cpu_s(family) - broker_s
        run.drain()
    tally = run.tally
    sample: Sample = {
        "rate": delivered / elapsed,
        "delivered": delivered,
        "lost": tally.lost,
        "repeated": tally.repeated,
        "late": tally.late,
        "client_busy": client_s / elapsed,
    }
    if pids:
        sample |= {"broker_busy": broker_s / elapsed, "resident_bytes": broker_usage.resident_bytes(family)}
    return sample


def _set_up(plan: Plan, publish_to: BenchTarget, subscribe_at: BenchTarget, stack: contextlib.ExitStack) -> _Run:
    """Connect all clients, and subscribe before any can publish; `stack` closes them."""

    def opened(target: BenchTarget, name: str, lasting: bool = False) -> BenchLink:
        client_id = f"{plan.prefix}-{name}"
        if lasting:
            forget(target, client_id)
            stack.callback(forget, target, client_id)
        link = connect(target, client_id, lasting=lasting)
        stack.callback(link.close)
        return link

    run = _Run(plan, stack)
    _subscribe_others(plan, lambda name: opened(subscribe_at, name))
    subscribers = []
    for index in range(plan.subscribers):
        link = opened(subscribe_at, f"subscriber-{index}", plan.lasting)
        subscribe(link, [plan.filter(0 if plan.fan else index)], plan.qos)
        subscribers.append(link)
    publishers = [opened(publish_to, f"publisher-{index}") for index in range(plan.publishers)]
    rings = [run.add_publisher(plan, index, link) for index, link in enumerate(publishers)]
    for index, link in enumerate(subscribers):
        run.add_subscriber(plan, index, link, rings)
    return run


class _Run:
    """All connections of one plan, and their event loop."""

    def __init__(self, plan: Plan, stack: contextlib.ExitStack) -> None:
        self.tally = Tally(plan.publishers)
        self._poller = select.epoll()
        self._boxes: dict[int, BenchInbox | BenchOutbox] = {}
        """By file descriptor."""
        self._waiting: set[int] = set()
        """File descriptors that wait for EPOLLOUT."""
        self._outboxes: list[BenchOutbox] = []
        self._eager = False
        """Every publisher could continue at once."""
        self._window_copies = plan.window * plan.publishers * plan.copies
        self._turns = 0
        self._turns_per_read = max(1, min(READ_EVERY_MESSAGES, plan.window // 4) // plan.batch)
        stack.callback(self._poller.close)

    def add_publisher(self, plan: Plan, index: int, link: BenchLink) -> MessageRing:
        topics = plan.topic_names(0 if plan.fan else index)
        count = message_ring.places(plan.window, plan.topics, plan.qos)
        messages = message_ring.build(index, topics, count, plan.qos, plan.payload_bytes, link.framed)
        outbox = BenchOutbox(
            link, messages, index, self.tally, qos=plan.qos, copies=plan.copies, window=plan.window, batch=plan.batch
        )
        self._outboxes.append(outbox)
        self._watch(outbox)
        return messages

    def add_subscriber(self, plan: Plan, index: int, link: BenchLink, rings: list[MessageRing]) -> None:
        """`rings`: those of all publishers; a subscriber of a pair gets only its own."""
        heard, first = (rings, 0) if plan.fan else (rings[index : index + 1], index)
        self._watch(BenchInbox(link, heard, first, plan.qos, self.tally))

    def _watch(self, box: BenchInbox | BenchOutbox) -> None:
        box.link.make_nonblocking()
        self._boxes[box.descriptor] = box
        self._poller.register(box.descriptor, select.EPOLLIN)

    def turn_for(self, seconds: float, windows: int) -> float:
        """Run for `seconds`, and until `windows` windows were delivered, but at most PATIENCE times as long. Returns
        how long it took.

        A slow broker may receive a whole window before it delivers the first message, and need more than a second for
        that.
        """
        clock = time.perf_counter
        start = now = clock()
        enough = self.tally.delivered + windows * self._window_copies
        while now - start < seconds or (
            self.tally.delivered < enough and now - start < max(PATIENCE * seconds, PATIENCE_MIN_S)
        ):
            self._turn(publish=True)
            now = clock()
        return now - start

    def drain(self) -> None:
        """Stop publishing, and wait at most DRAIN_MAX_S for messages in flight. When nothing arrives for QUIET_S, they
        are lost.
        """
        start = since = time.perf_counter()
        seen = self.tally.delivered
        while any(outbox.under_way() for outbox in self._outboxes):
            self._turn(publish=False)
            now = time.perf_counter()
            if self.tally.delivered != seen:
                seen, since = self.tally.delivered, now
            if now - since > QUIET_S:
                self.tally.lost += sum(outbox.unsettled() for outbox in self._outboxes)
                return
            if now - start > DRAIN_MAX_S:
                return

    def _turn(self, publish: bool) -> None:
        """Receive and answer what is there, then let every publisher write once.

        While all publishers can continue at once, receive only every few turns. Otherwise, with one message per write,
        the client would wake up for each message and limit the result.
        """
        self._turns += 1
        if not self._eager or self._turns % self._turns_per_read == 0:
            self._receive(0 if self._eager else TURN_MAX_S)
        self._eager = publish
        if publish:
            waiting = self._waiting
            for outbox in self._outboxes:
                if outbox.descriptor in waiting or not outbox.publish():
                    self._eager = False
                    if outbox.link.unsent:
                        self._await_room(outbox)

    def _receive(self, patience_s: float) -> None:
        for descriptor, event in self._poller.poll(patience_s):
            box = self._boxes[descriptor]
            if event & ~select.EPOLLOUT:
                box.receive()
            if not box.flush():
                self._await_room(box)
            elif descriptor in self._waiting:
                self._waiting.remove(descriptor)
                self._poller.modify(descriptor, select.EPOLLIN)

    def _await_room(self, box: BenchInbox | BenchOutbox) -> None:
        if box.descriptor not in self._waiting:
            self._waiting.add(box.descriptor)
            self._poller.modify(box.descriptor, select.EPOLLIN | select.EPOLLOUT)


def _subscribe_others(plan: Plan, opened: Callable[[str], BenchLink]) -> None:
    """On all connections at once, on each one packet at a time."""
    filters = plan.other_filters()
    shares = [filters[at : at + FILTERS_PER_CONNECTION] for at in range(0, len(filters), FILTERS_PER_CONNECTION)]
    links = [opened(f"filters-{index}") for index in range(len(shares))]
    for at in range(0, min(len(filters), FILTERS_PER_CONNECTION), FILTERS_PER_PACKET):
        asked = [(link, share[at : at + FILTERS_PER_PACKET]) for link, share in zip(links, shares, strict=True)]
        asked = [(link, part) for link, part in asked if part]
        for link, part in asked:
            ask(link, part, 0)
        for link, part in asked:
            granted(link, part, 0)
