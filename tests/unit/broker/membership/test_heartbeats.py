"""Whom a node counts as heard."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.frames import Status
from flockmq.membership.handshake import Identity
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.link import Link, LinkHandlers
from flockmq.membership.membership_settings import LocalStatus
from flockmq.membership.reachability import Reachability

PEER = "b@1"
BEAT = frames.Heartbeat(Status(in_majority=True))


class Node:
    """With one link, on which nothing really leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_core: bool) -> None:
        self.now = 100.0
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(Link, "_send_control", lambda link, encoded: None)
        self.link = Link(cast(Any, SimpleNamespace(handlers=LinkHandlers())), cast(Any, None), lambda link: None)
        self.link.up, self.link.peer = True, Identity(PEER, "core")
        mesh: Any = SimpleNamespace(links=lambda: [self.link], linked_cores=lambda: [PEER])
        time: Any = SimpleNamespace(reading=lambda: None, received=lambda incarnation, clocks: None)
        self.beats = Heartbeats(mesh, Reachability("a", self.now), LocalStatus, time, is_core)
        self.beats.greet(self.link)
        self.answers()
        self.hears()

    def hears(self) -> None:
        self.link.heard_at = self.now
        self.beats.received(self.link, BEAT)

    def answers(self) -> None:
        self.link.heard_at = self.now
        self.link._receive_control(frames.HeartbeatAck())

    def goes_on(self) -> None:
        """The heartbeats' turn."""
        self.beats._send_heartbeats(self.now, stood_still=True)

    def is_heard(self) -> bool:
        return self.beats.is_heard(PEER, self.now, bounds.MEMBER_FENCE_S)


@pytest.mark.parametrize("runs_first", [False, True])
async def test_what_waited_while_this_node_stood_still_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, runs_first: bool
) -> None:
    """Others may have purged it meanwhile; whether its timers or what arrived come first is the event loop's choice."""
    node = Node(monkeypatch, is_core=True)
    assert node.is_heard()
    node.beats.greet(node.link)
    node.now += 60.0
    if runs_first:
        node.beats._notice_pause(node.now)
        node.goes_on()
    node.hears()
    assert not node.is_heard()
    node.answers()  # what was asked before
    node.hears()
    assert not node.is_heard()
    if not runs_first:
        node.goes_on()
    node.answers()
    node.hears()
    assert node.is_heard()


async def test_a_replicant_is_fenced_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, is_core=False)
    assert not node.beats.is_fenced(node.now)
    node.now += 60.0
    node.hears()
    assert node.beats.is_fenced(node.now)
    node.goes_on()
    node.answers()
    node.hears()
    assert not node.beats.is_fenced(node.now)
