"""How long the roads of a few packets are: the broker's functions between a packet and its answers, and their files.

    PYTHONPATH=broker/src:tests python -m simulation.roads             the table
    PYTHONPATH=broker/src:tests python -m simulation.roads connect     one road, in the order of first calls

Counted is what nodes of all roles call, but for what they call while nobody asks anything of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final

from simulation.case import Defects
from simulation.cluster import Shape, SimulatedCluster
from simulation.run import HASH_SEED, started
from simulation.scenario import Client

Road = tuple[str, str]
"""A function, as its file and its qualified name."""
PACKAGE: Final = f"{os.sep}flockmq{os.sep}"
SEED: Final = 1
IDLE_S: Final = 1.0
SETTLED_S: Final = 0.02
"""What follows an answer belongs to the road: a settled acknowledgement, a report."""


async def publish(cluster: SimulatedCluster, publisher: Client, subscriber: Client) -> None:
    assert await publisher.publish("durable", b"1") == 0
    assert await subscriber.receives(b"1")


async def publish_local(cluster: SimulatedCluster, publisher: Client, subscriber: Client) -> None:
    assert await publisher.publish("local", b"2") == 0


async def connect(cluster: SimulatedCluster, publisher: Client, subscriber: Client) -> None:
    await Client.connect(cluster, "newcomer", at="replicant-1", expiry_s=60)


async def subscribe(cluster: SimulatedCluster, publisher: Client, subscriber: Client) -> None:
    assert await subscriber.subscribe("another") == 1


Play = Callable[[SimulatedCluster, Client, Client], Coroutine[Any, Any, None]]
ROADS: Final[dict[str, tuple[str, Play]]] = {
    "publish": ("PUBLISH to a durable session elsewhere", publish),
    "connect": ("CONNECT of a durable session", connect),
    "subscribe": ("SUBSCRIBE of a durable session, at a replicant", subscribe),
    "local": ("PUBLISH to a client of the same node", publish_local),
}


async def called(play: Coroutine[Any, Any, None], settled_s: float = SETTLED_S) -> list[Road]:
    """What is called until this is done, and a moment longer: each function once."""
    found: dict[Road, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and PACKAGE in frame.f_code.co_filename:
            found[frame.f_code.co_filename.rpartition(PACKAGE)[2], frame.f_code.co_qualname] = None

    sys.setprofile(note)
    try:
        await play
        await asyncio.sleep(settled_s)
    finally:
        sys.setprofile(None)
    return list(found)


async def road(cluster: SimulatedCluster, name: str) -> list[Road]:
    publisher = await Client.connect(cluster, "publisher", at="replicant-1")
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", expiry_s=60)
    neighbour = await Client.connect(cluster, "neighbour", at="replicant-1")
    for client, topic in ((subscriber, "durable"), (neighbour, "local")):
        await client.subscribe(topic)
        await publisher.publish(topic, b"0")  # from the second message on its topic is known
    await asyncio.sleep(3.0)
    idle = set(await called(asyncio.sleep(IDLE_S)))
    return [step for step in await called(ROADS[name][1](cluster, publisher, subscriber)) if step not in idle]


def traced(name: str) -> list[Road]:
    cluster = started(Shape())
    cluster.begin(SEED)
    with Defects(cluster):
        return cluster.loop.run(road(cluster, name), cluster.clients)


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation.roads", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="simulation.roads", description="How long the roads of a few packets are.")
    parser.add_argument("road", nargs="?", choices=tuple(ROADS), help="this one, function by function")
    name = parser.parse_args().road
    if name is not None:
        print(*(f"{file:32} {function}" for file, function in traced(name)), sep="\n")
        return
    for each, (text, _) in ROADS.items():
        steps = traced(each)
        print(f"{text:48} {len({file for file, _ in steps}):3} files {len(steps):4} functions")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # what the nodes do isn't to be undone
