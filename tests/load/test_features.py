"""What features write down is what happened; and each comes to what it is there for."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from conformance import wire
from load.clients import Load
from load.echo import Echo
from load.history import (
    Asked,
    Connected,
    Delivered,
    Disconnected,
    Played,
    Published,
    RetainedStood,
    SubscribeSent,
    Unsubscribed,
)
from load.profiles import FEATURES, PROFILES
from load.scripted import Connection, Play
from load.stage import Limits, Stage
from simulation.cluster import Shape, SimulatedCluster
from simulation.loop import SimulatedLoop

RATE = 20.0
PLAYED_S = 8.0
PATIENCE_S = 30.0
MQUEUE_LEN = 40


class YesMan:
    """Does nothing, and says yes."""

    async def ban(self, node: str, client: str) -> None: ...

    async def lift(self, node: str, client: str) -> None: ...

    async def deny(self, node: str, prefix: str) -> None: ...

    async def allow(self, node: str, prefix: str) -> None: ...


async def played(load: Load) -> list[str]:
    """All of it; who didn't settle."""
    await load.start()
    await asyncio.sleep(PLAYED_S)
    unsettled = await load.settle(PATIENCE_S)
    await load.leave(PATIENCE_S)
    return unsettled


def echoed(play: Play, profile: str) -> Play:
    Echo(play)
    play.stage.admin = YesMan()
    play.stage.limits = Limits(MQUEUE_LEN)
    assert play(played(Load(play.stage, 1, profile, RATE))) == []
    return play


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("all", "real")])
def test_what_is_written_down_is_what_the_node_saw(play: Play, profile: str) -> None:
    echoed(play, profile)
    said: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for event in play.events:
        match event:
            case Published():
                topic = event.topic if event.delay_s < 0 else f"$delayed/{event.delay_s:.0f}/{event.topic}"
                said[event.connection].append((wire.PUBLISH, topic, event.qos, event.again, event.retain))
            case SubscribeSent():
                said[event.connection].append((wire.SUBSCRIBE, event.filter))
            case Disconnected():
                said[event.connection].append((wire.DISCONNECT,))
    for number, connection in enumerate(play.node.connections, 1):
        assert list(_heard(connection)) == said[number]


def _heard(connection: Connection) -> Iterator[tuple[object, ...]]:
    for packet in connection.packets:
        match packet.kind:
            case wire.PUBLISH:
                yield packet.kind, packet.topic, packet.qos, bool(packet.flags & 8), bool(packet.flags & 1)
            case wire.SUBSCRIBE:
                yield packet.kind, packet.topic
            case wire.DISCONNECT:
                yield (packet.kind,)


@pytest.mark.parametrize("profile", ["base", "flow", "shared", "takeover"])
def test_what_is_delivered_is_what_was_answered(play: Play, profile: str) -> None:
    echoed(play, profile)
    delivered = Counter(event.connection for event in play.all(Delivered) if event.qos)
    answered = {
        number: len(connection.took(wire.PUBACK)) + len(connection.took(wire.PUBREC))
        for number, connection in enumerate(play.node.connections, 1)
    }
    assert sum(answered.values()) > 0
    assert {number: count for number, count in answered.items() if count} == dict(delivered)


def test_who_unsubscribes_says_so(play: Play) -> None:
    echoed(play, "retained")
    clients = {asked.connection: asked.client for asked in play.all(Asked)}
    heard = Counter(
        (clients[number], packet.topic)
        for number, connection in enumerate(play.node.connections, 1)
        for packet in connection.took(wire.UNSUBSCRIBE)
    )
    assert heard
    assert heard == Counter((event.client, event.filter) for event in play.all(Unsubscribed))


def test_the_same_seed_plays_the_same() -> None:
    stories = []
    for seed in (1, 1, 2):
        play = Play(seed)
        stories.append(list(map(str, echoed(play, "all").events)))
        play.close()
    assert stories[0] == stories[1]
    assert stories[0] != stories[2]


def test_rules_can_not_be_played_without_an_operator(play: Play) -> None:
    with pytest.raises(ValueError, match="admin"):
        Load(play.stage, 1, "rules", RATE)


def test_a_feature_that_comes_to_nothing_says_so(play: Play) -> None:
    echoed(play, "wills")
    times = {event.feature: event.times for event in play.all(Played)}
    assert times["base"] > 0
    assert times["wills"] == 0  # for the node publishes none


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    settings = (
        ("MQTT__MAX_MQUEUE_LEN", str(MQUEUE_LEN)),
        ("AUTHORIZATION__SOURCES", '[{"type": "built_in_database"}]'),
        ("AUTHORIZATION__NO_MATCH", "allow"),
        ("MQTT__CLIENT_ID_BINDING", "user"),
    )
    loop = SimulatedLoop()
    made = SimulatedCluster(loop, 1, Shape(cores=1, replicants=2, settings=settings))
    loop.run(made.start(), made.clients)
    yield made
    loop.close()


def test_on_real_nodes_each_feature_comes_to_what_it_is_there_for(cluster: SimulatedCluster) -> None:
    cluster.begin(1)
    stage = Stage(cluster.record, cluster.fronts, cluster.chance("load"), cluster.admin, Limits(MQUEUE_LEN))
    load = Load(stage, 1, "all", RATE)
    assert cluster.loop.run(played(load), cluster.clients) == []
    times = {event.feature: event.times for event in cluster.events if isinstance(event, Played)}
    assert times.keys() == {"base", *FEATURES}
    assert all(times.values()), times
    stood = [event for event in cluster.events if isinstance(event, RetainedStood)]
    assert sorted(event.node for event in stood) == ["replicant-1", "replicant-2"]
    assert stood[0].values == stood[1].values
    assert any(event.present for event in cluster.events if isinstance(event, Connected))
