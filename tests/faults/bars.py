"""`make faults-bars`: how long a failure may be felt, each bar by a scenario of its own: a table, 1 if one is missed.

- A core is killed: until each publisher whose session lasts has an acknowledgement of what it published after that,
  for subscribers whose sessions last too; and no connection of another node ends.
- A replicant is killed: from each client's new CONNECT to its first acknowledgement.
- Redis is away for 30 s: no connection ends, and QoS 0 and 1 between clean sessions go on.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from faults import sandbox
from faults.lab import Lab
from load import habits
from load.features.base import publications
from load.history import Acknowledged, AnyEvent, Asked, Closed, Connected, Delivered, Published
from load.player import CLEAN, DURABLE, Player
from load.stage import Stage
from load.subscribing import Wish

CORE_FAILOVER_MAX_S: Final = 3.0
REPLICANT_FAILOVER_MAX_S: Final = 1.0
REDIS_AWAY_S: Final = 30.0
QUIET_MAX_S: Final = 1.0
"""The longest that a clean session may hear nothing of a publisher that goes on, with Redis away."""
PUBLISHERS: Final = 12
RATE: Final = 10.0
"""Of one publisher, messages a second."""
WATCHED_S: Final = 8.0
WARM_S: Final = 3.0


class Bar(NamedTuple):
    what: str
    measured: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit

    def __str__(self) -> str:
        sign = "ok" if self.holds else "MISSED"
        return f"{self.what:<64}{self.measured:8.2f} {self.unit:<3}  ≤ {self.limit:g}  {sign}"


class Scene:
    """A load that has warmed up, and what is seen of it."""

    def __init__(self, lab: Lab, events: list[AnyEvent]) -> None:
        self.lab = lab
        self.events = events

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def drops(self, since: float) -> int:
        """Connections that ended without their client's asking."""
        return sum(isinstance(event, Closed) and event.by_server and event.at >= since for event in self.events)

    def first_acknowledgements_s(self, since: float) -> list[float]:
        """By publisher: how long it took until something published from `since` on was acknowledged."""
        published = {
            (event.client, event.number)
            for event in self.events
            if isinstance(event, Published) and event.at >= since and not event.again
        }
        first: dict[str, float] = {}
        for event in self.events:
            if isinstance(event, Acknowledged) and (event.client, event.number) in published:
                first.setdefault(event.client, event.at - since)
        return [first.get(f"pub{i}", WATCHED_S) for i in range(PUBLISHERS)]

    def acknowledged_after_connecting_s(self, since: float) -> list[float]:
        """Of each publisher that connected from `since` on: from the CONNECT that went well to an acknowledgement."""
        asked: dict[int, float] = {}
        waiting: dict[str, float] = {}
        took: list[float] = []
        for event in self.events:
            if event.at < since:
                continue
            if isinstance(event, Asked):
                asked[event.connection] = event.at
            elif isinstance(event, Connected) and event.client.startswith("pub"):
                waiting[event.client] = asked[event.connection]
            elif isinstance(event, Acknowledged) and event.client in waiting:
                took.append(event.at - waiting.pop(event.client))
        return took + [WATCHED_S] * len(waiting)

    def longest_silence_s(self, since: float, until: float) -> float:
        """Between two deliveries of one publisher's messages to one subscriber."""
        last: dict[tuple[str, str, int], float] = {}
        longest = 0.0
        for event in self.events:
            if isinstance(event, Delivered):
                key = event.client, event.publisher, event.qos
                if since <= event.at <= until:
                    longest = max(longest, event.at - max(since, last.get(key, since)))
                last[key] = event.at
        return max([longest, *(until - max(since, at) for at in last.values() if at < until)])


async def core_killed(lab: Lab) -> list[Bar]:
    """Each core in turn, the leader among them."""
    slowest, drops = 0.0, 0
    async with _scene(lab, lasts=True) as scene:
        for core in lab.cores:
            since = scene.now()
            await core.kill()
            await asyncio.sleep(WATCHED_S)
            slowest = max(slowest, *scene.first_acknowledgements_s(since))
            drops += scene.drops(since)
            await core.start()
            await lab.until_ready()
            await asyncio.sleep(WARM_S)
    return [
        Bar("a core killed: until each durable publisher is acknowledged", slowest, CORE_FAILOVER_MAX_S, "s"),
        Bar("a core killed: connections of other nodes that ended", drops, 0, ""),
    ]


async def replicant_killed(lab: Lab) -> list[Bar]:
    bars = []
    for lasts, name in ((False, "clean"), (True, "durable")):
        async with _scene(lab, lasts=lasts) as scene:
            since = scene.now()
            await lab.replicants[0].kill()
            await asyncio.sleep(WATCHED_S)
            slowest = max(scene.acknowledged_after_connecting_s(since), default=WATCHED_S)
            await lab.replicants[0].start()
            await lab.until_ready()
        what = f"a replicant killed: {name} publishers, from CONNECT to acknowledgement"
        bars.append(Bar(what, slowest, REPLICANT_FAILOVER_MAX_S, "s"))
    return bars


async def redis_away(lab: Lab) -> list[Bar]:
    bars = []
    for lasts, name in ((False, "clean"), (True, "durable")):
        async with _scene(lab, lasts=lasts, qos=(1,) if lasts else (0, 1)) as scene:
            since = scene.now()
            await lab.redis[0].kill()
            await asyncio.sleep(REDIS_AWAY_S)
            until = scene.now()
            await lab.redis[0].start()
            await asyncio.sleep(WATCHED_S)
            bars.append(Bar(f"Redis away for 30 s: {name} connections that ended", scene.drops(since), 0, ""))
            if not lasts:
                silence = scene.longest_silence_s(since, until)
                bars.append(Bar("Redis away for 30 s: longest silence at QoS 0 and 1", silence, QUIET_MAX_S, "s"))
            await lab.until_ready()
    return bars


@asynccontextmanager
async def _scene(lab: Lab, *, lasts: bool, qos: tuple[int, ...] = (1, 2)) -> AsyncIterator[Scene]:
    events: list[AnyEvent] = []
    stage = Stage(events.append, lab.fronts, random.Random(1))
    terms = DURABLE if lasts else CLEAN
    subscribers = [Player(stage, f"sub{i}", terms, [Wish(f"load/pub{i}/#")]) for i in range(PUBLISHERS)]
    publishers = [Player(stage, f"pub{i}", terms) for i in range(PUBLISHERS)]
    players = [*subscribers, *publishers]
    tasks = [asyncio.create_task(player.run()) for player in players]
    for player in publishers:
        publication = publications(f"load/{player.name}", qos)
        tasks.append(asyncio.create_task(habits.publish(player, RATE, publication, steadily=True)))
    await asyncio.sleep(WARM_S)
    try:
        yield Scene(lab, events)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(player.leave() for player in players))


SCENARIOS: Final[dict[str, Callable[[Lab], Awaitable[Sequence[Bar]]]]] = {
    "core": core_killed,
    "replicant": replicant_killed,
    "redis": redis_away,
}


async def measure(options: argparse.Namespace) -> int:
    lab = Lab(options.out, cores=3, replicants=3)
    bars: list[Bar] = []
    try:
        await lab.start()
        for name in [options.only] if options.only else SCENARIOS:
            for bar in await SCENARIOS[name](lab):
                print(bar, flush=True)
                bars.append(bar)
    finally:
        await lab.stop()
    return int(not all(bar.holds for bar in bars))


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.bars", description="How long failures are felt.")
    parser.add_argument("--only", choices=tuple(SCENARIOS), help="one scenario")
    parser.add_argument("--out", type=Path, default=Path("build/faults"), help="for the nodes' logs")
    options = parser.parse_args()
    if not sandbox.is_inside():
        return sandbox.enter([sys.executable, "-m", "faults.bars", *sys.argv[1:]])
    sandbox.furnish()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    return uvloop.run(measure(options))


if __name__ == "__main__":
    sys.exit(main())
