"""A node with topic rewrites, auto-subscriptions and plugins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flockmq.config.feature_settings import AutoSubscribeSettings, RewriteSettings
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import unwrap
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.plugins.dispatch import Record
from flockmq.plugins.loading import Plugins
from flockmq.plugins.points import A, E, Point
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ANONYMOUS
from flockmq.session.local_session import LocalSession
from unit.broker.protocol.harness import Client, Node, Port

PUBLISH_RULE = RewriteSettings(action="publish", source_topic="old/#", re="^old/(.+)$", dest_topic="new/$1")


class Hooked(Port):
    """A node whose clients meet rules and one plugin, as `node.Node` has them meet."""

    def __init__(self, rewrite: Sequence[RewriteSettings] = (), auto: Sequence[AutoSubscribeSettings] = ()) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.router = self.node.router
        self.plugin_hooks = self.hooks = PluginHooks(self.router, Plugins(()), rewrite, auto)
        self.plugin = self.plugin_hooks.hooks.plugins["p"] = Record("p", "1")

    def hook(
        self, point: Point[E, A], call: Callable[[E], A], *, priority: int = 0, filters: tuple[bytes, ...] = ()
    ) -> None:
        self.plugin_hooks.hooks.add(self.plugin, point, call, priority, point.required, filters)

    def admit(self, channel: Channel, connect: Connect) -> None:
        known = self.plugin_hooks.authenticate(channel, connect)
        if isinstance(known, int):
            channel.refuse(known)
            return
        channel.principal = ANONYMOUS if known is None else known
        channel.set_must_authorize(self.plugin_hooks.must_authorize())
        assert channel.session is not None
        channel.admitted(connect, 7, channel.session, False)
        self.plugin_hooks.connected(channel, channel.session, False)

    def refused(self, channel: Channel, reason: int) -> None:
        self.plugin_hooks.refused(channel, reason)

    def gone(self, channel: Channel, session: LocalSession, will: Will | None) -> None:
        super().gone(channel, session, self.plugin_hooks.leaving(channel, will))
        self.plugin_hooks.disconnected(channel)

    def session_ended(self, session: LocalSession) -> None:
        self.plugin_hooks.session_ended(session.client_id)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        verdict = self.plugin_hooks.authorize(channel, action, *unwrap(topic), qos, retain)
        return super().authorize(channel, action, topic, qos, retain, done) if verdict is None else verdict

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        reasons = super().unsubscribe(channel, session, filters)
        for filter, reason in zip(filters, reasons, strict=True):
            if reason == Reason.SUCCESS:
                self.plugin_hooks.unsubscribed(channel, filter)
        return reasons

    def received(self, client: Client) -> list[bytes]:
        self.node.turn()
        return client.packets()


def a_client(hooked: Hooked, client_id: str, version: int = 5, user: bytes | None = None) -> Client:
    return hooked.node.client(client_id, version, Connect(version, client_id.encode(), user_name=user))
