"""A scripted node that sends on what it is sent, to whoever is connected and subscribed, and takes connections over."""

from __future__ import annotations

from conformance import wire
from load.features.owners import THIEF
from load.scripted import Connection, Play, Took


class Echo:
    def __init__(self, play: Play) -> None:
        self._node = play.node
        self._node.answer = self._answer
        self._clients: dict[str, Connection] = {}
        self._filters: dict[Connection, dict[str, int]] = {}
        self._sent = 0

    def _answer(self, connection: Connection, packet: Took) -> bytes:
        match packet.kind:
            case wire.CONNECT if packet.rest.endswith(THIEF.encode()):
                return wire.packet(0x20, bytes((0, 0x85)), b"\0" if connection.version == wire.V5 else b"")
            case wire.CONNECT:
                if (older := self._clients.get(packet.topic)) is not None:
                    older.end()
                self._clients[packet.topic] = connection
                self._filters[connection] = {}
            case wire.SUBSCRIBE:
                self._filters[connection][packet.topic] = packet.rest[0]
            case wire.UNSUBSCRIBE:
                self._filters[connection].pop(packet.topic, None)
            case wire.PUBLISH if packet.rest:
                self._send_on(packet)
        return self._node.yes(connection, packet)

    def _send_on(self, packet: Took) -> None:
        topic = packet.topic.split("/", 2)[2] if packet.topic.startswith("$delayed/") else packet.topic
        for connection, filters in self._filters.items():
            matching = [qos for filter, qos in filters.items() if _matches(_bare(filter), topic)]
            if matching and not connection.is_closing():
                qos = min(packet.qos, max(matching))
                self._sent = self._sent % 65_535 + 1
                message = wire.publish(
                    connection.version, topic, packet.rest, qos=qos, packet_id=self._sent if qos else None
                )
                connection.say(message)


def _bare(filter: str) -> str:
    """What stands behind $share/GROUP/ and $exclusive/."""
    levels = filter.split("/")
    return "/".join(levels[{"$share": 2, "$exclusive": 1}.get(levels[0], 0) :])


def _matches(filter: str, topic: str) -> bool:
    levels, names = filter.split("/"), topic.split("/")
    if levels[-1] == "#":
        levels, names = levels[:-1], names[: len(levels) - 1]
    return len(levels) == len(names) and all(level in ("+", name) for level, name in zip(levels, names, strict=True))
