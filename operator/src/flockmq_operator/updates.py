"""Which MqttCluster has its turn where a newer operator would make other pods by itself (`spec.update: Automatic`): one
after the other, so that a release that breaks a cluster breaks one.

Edits of a spec wait for no turn. A MqttCluster has its turn from when its pods begin to be replaced until it is whole
again. Nothing of this is stored: an operator that starts gives no turn before it has looked at all that it keeps, and
one that it finds half replaced has its turn.
"""

from collections.abc import Set

from flockmq_operator.passes import Key

TURNS_MAX = 1
"""MqttClusters that are updated at a time."""


class Updates:
    def __init__(self) -> None:
        self._looked_at: set[Key] = set()
        self._turns: dict[Key, bool] = {}
        """Whose turn it is → whether its pods are being replaced; it has just asked, else."""
        self._waiting: set[Key] = set()

    def may_begin(self, key: Key, kept: Set[Key]) -> bool:
        """Whether it has its turn in this pass. `kept`: the MqttClusters of this operator."""
        if key not in self._turns and len(self._turns) < TURNS_MAX and kept - {key} <= self._looked_at:
            self._turns[key] = False
        return key in self._turns

    def is_new(self, key: Key) -> bool:
        """Whether this operator hasn't looked at it yet."""
        return key not in self._looked_at

    def whose_turn(self, key: Key) -> str:
        """Of others, for a sentence; empty: nobody's."""
        return ", ".join(sorted("/".join(other) for other in self._turns if other != key))

    def looked_at(
        self, key: Key, *, is_replaced: bool = False, is_whole: bool = False, waits: bool = False
    ) -> set[Key]:
        """After a pass. `is_replaced`: its pods are, for an update; `waits`: it hasn't had its turn. Returns whom to
        look at now."""
        is_first = self.is_new(key)
        self._looked_at.add(key)
        self._waiting = self._waiting | {key} if waits else self._waiting - {key}
        if is_replaced:
            self._turns[key] = True
        elif key in self._turns and (is_whole or not self._turns[key]):
            del self._turns[key]
            return self._waiting - {key}
        return self._waiting - {key} if is_first else set()

    def forget(self, key: Key) -> set[Key]:
        """There is no such MqttCluster any more. Returns whom to look at now."""
        self._looked_at.discard(key)
        self._waiting.discard(key)
        self._turns.pop(key, None)
        return set(self._waiting)
