"""Applies topic rewriting, auto-subscription and plugin hooks to the clients of a node.

The node calls a method here at each hook point. If a handler is registered, the method makes an event and passes it to
`plugins.dispatch`.

Invariants:
- The router's `intercepts` are exactly the topics of publish rewrite rules and of message.publish handlers.
- A topic is rewritten first; then the handlers of the new topic are called.
- Rules and handlers see the topic without a prefix such as `$share/group/`.
- No handler is called for auto-subscriptions and for messages that plugins publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from flockmq.bounds import AUTO_SUBSCRIPTIONS_MAX, REWRITE_RULES_MAX
from flockmq.config.feature_settings import AutoSubscribeSettings, RewriteSettings
from flockmq.default_callbacks import ignore
from flockmq.errors import ConfigError
from flockmq.management.view import PluginRow
from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt import properties as mqtt_properties
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import NO_EXPIRY, Publish, Will
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_HANDLING_SHIFT, Connect, Subscribe
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.rewrite_rule import CLIENT_ID, CLIENT_NAMES, HOST, USER_NAME, RewriteRule, TopicTemplate
from flockmq.mqtt.topics import check_filter, is_unpublishable, unwrap
from flockmq.plugins import points
from flockmq.plugins.dispatch import Handler, Record
from flockmq.plugins.loading import Plugins
from flockmq.plugins.points import Allow, Client, Deny
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, DENIED, PUBLISH, Principal
from flockmq.protocol.ports import HookPort
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.router import Router
from flockmq.routing.topic_rewrite import RewriteRules
from flockmq.session.client_session import ClientSession
from flockmq.telemetry.sample import Sample


class PluginHooks(HookPort):
    """The hook points of one node, for all its connections."""

    def __init__(
        self,
        router: Router,
        plugins: Plugins,
        rewrite: Sequence[RewriteSettings] = (),
        auto: Sequence[AutoSubscribeSettings] = (),
    ) -> None:
        """Raises ConfigError if there are too many rules."""
        if len(rewrite) > REWRITE_RULES_MAX:
            raise ConfigError(f"rewrite: {len(rewrite)} rules; {REWRITE_RULES_MAX} are the most")
        if len(auto) > AUTO_SUBSCRIPTIONS_MAX:
            raise ConfigError(f"auto_subscribe: {len(auto)} subscriptions; {AUTO_SUBSCRIPTIONS_MAX} are the most")
        self.plugins = plugins
        self.hooks = plugins.hooks
        self._placed = plugins.hooks.placed
        self._router = router
        self._publishes = RewriteRules([_rule(each) for each in rewrite if each.action != "subscribe"])
        self._subscribes = RewriteRules([_rule(each) for each in rewrite if each.action != "publish"])
        self._auto = [(TopicTemplate(each.topic, CLIENT_NAMES), _options(each)) for each in auto]
        self._handlers = FilterIndex()
        self.on_change: Callable[[], None] = ignore
        """Called when the set of active handlers changes, so that clients are authorized again."""
        self.hooks.on_change = self._changed
        self._place()

    def _changed(self) -> None:
        self._place()
        self.on_change()

    def _place(self) -> None:
        """Make the router intercept the topics that a rule or a handler is for."""
        filters = dict.fromkeys(self._publishes.sources())
        handlers = FilterIndex()
        for handler in self.hooks.at(points.MESSAGE_PUBLISH):
            for filter in handler.filters:
                handlers.add(filter, handler)
                filters[filter] = None
        router = self._router
        router.intercept(list(filters))
        self._handlers = handlers
        hooked = (
            points.CLIENT_SUBSCRIBE in self._placed
            or points.CLIENT_UNSUBSCRIBE in self._placed
            or points.SESSION_SUBSCRIBED in self._placed
        )
        router.intercepts_subscriptions = hooked or len(self._subscribes) > 0

    # Connections.

    def authenticate(self, channel: Channel, connect: Connect) -> Principal | int | None:
        """The client's principal, a reason code to refuse it with, or None if no plugin decides."""
        if points.CLIENT_CONNECT in self._placed:
            refusal = self.hooks.ask(points.CLIENT_CONNECT, client_of(channel, connect.user_name or b""))
            if isinstance(refusal, Deny):
                return refusal.reason
        if points.CLIENT_AUTHENTICATE not in self._placed:
            return None
        client = client_of(channel, connect.user_name or b"")
        asked = points.Credentials(client=client, password=connect.password)
        answer = self.hooks.ask(points.CLIENT_AUTHENTICATE, asked)
        if isinstance(answer, Deny):
            return answer.reason
        if isinstance(answer, Allow):
            username = client.username if answer.username is None else answer.username
            return Principal(username.encode(), superuser=answer.superuser)
        return None

    def must_authenticate(self) -> bool:
        return points.CLIENT_AUTHENTICATE in self._placed

    def must_authorize(self) -> bool:
        return points.CLIENT_AUTHORIZE in self._placed

    def authorize(
        self, channel: Channel, action: int, prefix: bytes, topic: bytes, qos: int, retain: bool
    ) -> int | None:
        """ALLOWED, DENIED, or None if no plugin decides."""
        if points.CLIENT_AUTHORIZE not in self._placed:
            return None
        kind: Literal["publish", "subscribe"] = "publish" if action == PUBLISH else "subscribe"
        asked = points.Access(
            client=client_of(channel), action=kind, topic=topic.decode(), qos=qos, retain=retain, prefix=prefix.decode()
        )
        answer = self.hooks.ask(points.CLIENT_AUTHORIZE, asked)
        if isinstance(answer, Deny):
            return DENIED
        return ALLOWED if isinstance(answer, Allow) else None

    def refused(self, channel: Channel, reason: int) -> None:
        """The client got a CONNACK that refuses it."""
        if points.CLIENT_CONNACK in self._placed:
            self.hooks.notify(points.CLIENT_CONNACK, points.Connack(client=client_of(channel), reason=reason))

    def connected(self, channel: Channel, session: ClientSession, is_present: bool) -> None:
        """CONNACK was queued. Tell plugins, and make the configured auto-subscriptions."""
        hooks = self.hooks
        event = points.SESSION_RESUMED if is_present else points.SESSION_CREATED
        if event in self._placed:
            hooks.notify(event, points.Session(client_id=session.client_id.decode()))
        if points.CLIENT_CONNACK in self._placed:
            hooks.notify(points.CLIENT_CONNACK, points.Connack(client=client_of(channel), reason=Reason.SUCCESS))
        if points.CLIENT_CONNECTED in self._placed:
            hooks.notify(points.CLIENT_CONNECTED, client_of(channel))
        if self._auto and not channel.has_ended():
            self._subscribe_automatically(channel, session)

    def leaving(self, channel: Channel, will: Will | None) -> Will | None:
        """The client's will as it will be published, or None if a rule or a plugin drops it."""
        if will is None or self._router.refuses(will.message.topic):
            return None
        if self._router.is_intercepted(will.message.topic):
            replaced = self.intercept(channel, will.message)
            return None if isinstance(replaced, int) else Will(replaced, will.delay_s, will.authorization)
        return will

    def disconnected(self, channel: Channel) -> None:
        if points.CLIENT_DISCONNECTED in self._placed:
            event = points.Disconnected(client=client_of(channel), reason=channel.close_reason)
            self.hooks.notify(points.CLIENT_DISCONNECTED, event)

    def taken_over(self, client_id: bytes) -> None:
        if points.SESSION_TAKENOVER in self._placed:
            self.hooks.notify(points.SESSION_TAKENOVER, points.Session(client_id=client_id.decode()))

    def session_ended(self, client_id: bytes) -> None:
        if points.SESSION_TERMINATED in self._placed:
            self.hooks.notify(points.SESSION_TERMINATED, points.Session(client_id=client_id.decode()))

    # Subscriptions.

    def subscribing(self, channel: Channel, request: Request) -> bytes:
        """The filter to subscribe to instead of the requested one, or b"" to refuse it."""
        username = channel.principal.username
        filter = self._subscribes.filter(request.filter, channel.client_id(), username)
        if not filter or points.CLIENT_SUBSCRIBE not in self._placed:
            return filter
        prefix, inner = unwrap(filter)
        client = client_of(channel)
        asked = points.Subscription(client=client, filter=inner.decode(), qos=request.qos, prefix=prefix.decode())
        answer = self.hooks.ask(points.CLIENT_SUBSCRIBE, asked)
        if isinstance(answer, Deny):
            return b""
        return filter if isinstance(answer, Allow) else prefix + answer.filter.encode()

    def rewrites(self, channel: Channel, filter: bytes) -> bool:
        """Whether rewrite rules change this filter."""
        return self._subscribes.filter(filter, channel.client_id(), channel.principal.username) != filter

    def subscribed(self, channel: Channel, filter: bytes, qos: int) -> None:
        if points.SESSION_SUBSCRIBED in self._placed:
            prefix, inner = unwrap(filter)
            client = client_of(channel)
            event = points.Subscription(client=client, filter=inner.decode(), qos=qos, prefix=prefix.decode())
            self.hooks.notify(points.SESSION_SUBSCRIBED, event)

    def unsubscribing(self, channel: Channel, filter: bytes) -> bytes:
        """The filter to unsubscribe from instead of the requested one. If rules refuse it, it stays the requested
        one."""
        rewritten = self._subscribes.filter(filter, channel.client_id(), channel.principal.username) or filter
        if points.CLIENT_UNSUBSCRIBE not in self._placed:
            return rewritten
        asked = _unsubscription(channel, rewritten)
        answer = self.hooks.ask(points.CLIENT_UNSUBSCRIBE, asked)
        decided = answer if isinstance(answer, points.Unsubscription) else asked
        return (asked.prefix + decided.filter).encode()

    def unsubscribed(self, channel: Channel, filter: bytes) -> None:
        if points.SESSION_UNSUBSCRIBED in self._placed:
            self.hooks.notify(points.SESSION_UNSUBSCRIBED, _unsubscription(channel, filter))

    def _subscribe_automatically(self, channel: Channel, session: ClientSession) -> None:
        values = {
            CLIENT_ID: session.client_id.decode(),
            USER_NAME: channel.principal.username.decode(),
            HOST: channel.peer().host,
        }
        requests = []
        for template, options in self._auto:
            filter = template.fill(values)
            try:
                check_filter(filter)
            except PacketError:
                continue  # the client's id or user name makes the filter invalid
            requests.append(Request(filter, options))
        if requests:
            channel.subscribe(Subscribe(0, requests, None))

    # Messages.

    def intercept(self, channel: Channel, message: Publish) -> Publish | int:
        """Called for a message on one of the router's `intercepts`. Returns the message to publish instead, or the
        reason code with which it is dropped."""
        if len(self._publishes):
            topic = self._publishes.topic(message.topic, channel.client_id(), channel.principal.username)
            if not topic or self._router.refuses(topic):
                return Reason.TOPIC_NAME_INVALID
            if topic != message.topic:
                encoded, expiry_s = message.properties, message.expiry_s
                message = _remade(message, message.version, topic, message.payload(), message.retain, encoded, expiry_s)
        prefix, inner = unwrap(message.topic)
        handlers = {handler for handler in self._handlers.match(inner) if isinstance(handler, Handler)}
        replaced = self._handled(channel, message, prefix, inner, handlers) if handlers else message
        if isinstance(replaced, Publish) and is_unpublishable(replaced.topic):
            return Reason.TOPIC_NAME_INVALID
        return replaced

    def _handled(
        self, channel: Channel, message: Publish, prefix: bytes, topic: bytes, handlers: set[Handler]
    ) -> Publish | int:
        """Pass the message to these handlers. `topic` is its topic without `prefix`. Returns as `intercept` does."""
        asked = points.Message(
            client=client_of(channel),
            topic=topic.decode(),
            payload=message.payload(),
            qos=message.qos,
            retain=message.retain,
            properties=_decoded(message.properties),
            prefix=prefix.decode(),
        )
        answer = self.hooks.ask_all(sorted(handlers, key=_order), asked)
        if isinstance(answer, Deny):
            return answer.reason
        if isinstance(answer, Allow) or answer is asked:
            return message
        encoded = mqtt_properties.encode(frame.PUBLISH, answer.properties)
        version = 5 if encoded else message.version
        expiry = None if answer.properties is None else answer.properties.message_expiry_interval
        expiry_s = NO_EXPIRY if expiry is None else expiry
        topic = prefix + answer.topic.encode()
        return _remade(message, version, topic, answer.payload, answer.retain, encoded, expiry_s)

    # For management and metrics.

    def rows(self) -> list[PluginRow]:
        return [self._row(record) for record in self.hooks.plugins.values()]

    def enable(self, name: str) -> PluginRow | None:
        """Enable a plugin that was disabled after failures. Returns None if there is no such plugin."""
        return self._row(self.hooks.plugins[name]) if self.hooks.enable(name) else None

    def samples(self) -> Iterator[Sample]:
        for record in self.hooks.plugins.values():
            plugin = (record.name,)
            yield Sample("flockmq_plugin_running", record.state == "running", plugin)
            yield Sample("flockmq_plugin_calls", record.calls, plugin)
            yield Sample("flockmq_plugin_seconds", record.seconds, plugin)
            yield Sample("flockmq_plugin_failures", record.failures, plugin)

    def _row(self, record: Record) -> PluginRow:
        return PluginRow(
            name=record.name,
            version=record.version,
            state=record.state,
            points=self.hooks.points_of(record),
            calls=record.calls,
            seconds=record.seconds,
            failures=record.failures,
            last_failure=record.last_failure,
        )


def client_of(channel: Channel, username: bytes | None = None) -> Client:
    """A connection, as plugins see it. `username` is given for a client that isn't authenticated yet."""
    peer = channel.peer()
    return Client(
        client_id=channel.client_id().decode(),
        username=(channel.principal.username if username is None else username).decode(),
        host=peer.host,
        port=peer.port,
        listener=peer.listener,
        protocol=channel.protocol_version,
    )


def _remade(
    message: Publish, version: int, topic: bytes, payload: bytes, retain: bool, encoded: bytes, expiry_s: int
) -> Publish:
    """Encode a new packet for the message, with other content. QoS and packet id stay."""
    packet_id, qos = message.packet_id, message.qos
    packet = encode.publish(
        version, topic, payload, qos=qos, retain=retain, packet_id=packet_id, encoded_properties=encoded
    )
    return Publish(packet, version, qos, retain, topic, packet_id, encoded, len(packet) - len(payload), expiry_s)


def _unsubscription(channel: Channel, filter: bytes) -> points.Unsubscription:
    prefix, inner = unwrap(filter)
    return points.Unsubscription(client=client_of(channel), filter=inner.decode(), prefix=prefix.decode())


def _decoded(encoded: bytes) -> mqtt_properties.Properties | None:
    block = frame.varint(len(encoded)) + encoded
    return decode.publish_properties(block, 0, len(block))[0]


def _order(handler: Handler) -> tuple[int, int]:
    return handler.order


def _rule(wanted: RewriteSettings) -> RewriteRule:
    return RewriteRule(wanted.source_topic, wanted.re, wanted.dest_topic)


def _options(wanted: AutoSubscribeSettings) -> int:
    """The options byte of a SUBSCRIBE (section 3.8.3.1)."""
    flags = (NO_LOCAL if wanted.nl else 0) | (RETAIN_AS_PUBLISHED if wanted.rap else 0)
    return wanted.qos | flags | wanted.rh << RETAIN_HANDLING_SHIFT
