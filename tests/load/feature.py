"""A feature of a load: its players, what each of them plays, and how often they came to what the feature is there for.

A feature's file in features/ has one function that gives a new Feature its players and acts; profiles.py says which
features a load has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from load.history import Played
from load.player import CLEAN, Player, Terms
from load.stage import Stage
from load.subscribing import Wish

Act = Callable[[], Coroutine[Any, Any, None]]


class Feature:
    def __init__(self, stage: Stage, name: str, chapter: int, rate: float) -> None:
        """`rate`: about how many messages its publishers send a second, in all."""
        self.stage = stage
        self.name = name
        self.rate = rate
        self.root = f"load{chapter}/{name}"
        """Of its topics: what comes late, by a node that stood still, comes to nobody of the next chapter."""
        self.players: list[Player] = []
        self.acts: list[Act] = []
        """Each is played from when all players are there until it is cancelled, or ends."""
        self.mend: list[Act] = []
        """What is undone then."""
        self.retains = False
        """In the end it is looked at what every node has retained."""
        self.late_s = (0.0, 0.0)
        """How long after all its players were there something may come twice; what hasn't come is lost after."""
        self.prefix = f"{chapter}-{name}"
        self._times: list[float] = []

    def player(
        self, name: str, terms: Terms = CLEAN, wishes: Sequence[Wish] = (), wanted: Sequence[str] | None = None
    ) -> Player:
        player = Player(self.stage, f"{self.prefix}-{name}", terms, wishes, wanted)
        self.players.append(player)
        return player

    def act(self, plays: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, **more: Any) -> None:
        self.acts.append(lambda: plays(*arguments, **more))

    def counts(self, player: Player) -> None:
        """What comes to this player is what the feature is there for."""
        player.taking.heard = lambda _: self.came()

    def came(self) -> None:
        """It came to what the feature is there for, once more."""
        self._times.append(self.stage.now())

    def times_since(self, since: float) -> int:
        return len(self._times) - bisect_left(self._times, since)

    def played(self, since: float) -> Played:
        return Played(self.stage.now(), self.name, self.times_since(since))
