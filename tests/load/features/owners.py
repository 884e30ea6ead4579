"""Client ids that are a user's: clients of one user connect, stay, publish and are sent to, and another user comes by
their client ids all the while, at any node. Nodes must bind client ids to users.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.features.base import publications
from load.history import Intruded
from load.link import Link
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player, connect
from load.stage import Node, Stage
from load.subscribing import Wish

OWNER: Final = "owner"
THIEF: Final = "thief"
OWNED: Final = {"clean": CLEAN, "clean-311": CLEAN_311, "durable": DURABLE, "durable-311": DURABLE_311}
HERE_S: Final = (0.5, 3.0)
AWAY_S: Final = (0.3, 2.0)
EVERY_S: Final = (0.05, 0.5)
IDENTIFIER_REJECTED: Final = (2, 0x85)
"""Of 3.1.1 and 5.0."""


def play(feature: Feature) -> None:
    owned: list[Player] = []
    for name, terms in OWNED.items():
        theirs = terms._replace(user=OWNER)
        publisher = feature.player(f"pub-{name}", theirs)
        feature.act(habits.publish, publisher, feature.rate / len(OWNED), publications(f"{feature.root}/{name}"))
        taker = feature.player(name, theirs, [Wish(f"{feature.root}/#")])
        feature.act(habits.leave_and_return, taker, HERE_S, AWAY_S)
        owned += [publisher, taker]
    feature.act(_steal, feature, owned)


async def _steal(feature: Feature, owned: list[Player]) -> None:
    stage, dice = feature.stage, feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*EVERY_S))
        owner = dice.choice(owned)
        if await _intrude(stage, owner, dice.choice(stage.nodes())) in IDENTIFIER_REJECTED:
            feature.came()


async def _intrude(stage: Stage, owner: Player, node: Node) -> int:
    """The reason code of CONNACK, or -1 for none. Of a client id that may be nobody's it takes the connection alone: a
    session of its own would keep the client out."""
    lasts = owner.terms.lasts and stage.random.random() < 0.5
    terms = stage.random.choice((DURABLE, DURABLE_311) if lasts else (CLEAN, CLEAN_311))._replace(user=THIEF)
    asked_at, number = stage.now(), next(stage.connections)
    link = Link(number, node.name, terms.version, lambda packet: None, lambda link, by_server, reason: None)
    connack = await link.open(node.address, connect(owner.name, terms))
    link.close()
    if connack is None:
        return -1
    stage.record(Intruded(stage.now(), owner.name, node.name, asked_at, connack.reason))
    return connack.reason
