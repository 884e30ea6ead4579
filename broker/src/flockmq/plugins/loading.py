"""Loads, starts and stops plugins.

Invariants: if a plugin can't be loaded or started, the node doesn't start, because this plugin may be the one that
refuses clients.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol, runtime_checkable

from flockmq.bounds import PLUGIN_FILTERS_MAX
from flockmq.clock import SYSTEM, Clock
from flockmq.errors import ConfigError, UserError
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.topics import check_filter, check_topic_name, split_share
from flockmq.plugins.dispatch import Hooks, Record
from flockmq.plugins.points import MESSAGE_PUBLISH, POINTS, A, E, Point

log: Final = logging.getLogger(__name__)

GROUP: Final = "flockmq.plugins"

Publish = Callable[[bytes, bytes, int, bool], None]
"""Publishes a plugin's message: (topic, payload, QoS, retain)."""


class Context:
    """The node's services for one plugin. Use it on the node's event loop only; other threads must call
    `loop.call_soon_threadsafe`."""

    def __init__(
        self, record: Record, hooks: Hooks, node: str, settings: Mapping[str, object], publish: Publish
    ) -> None:
        self.name: Final = record.name
        self.node: Final = node
        self.settings: Final = settings
        """The table `[plugins.settings.NAME]` of the configuration; empty if there is none."""
        self.log: Final = logging.getLogger(f"{GROUP}.{record.name}")
        self._record = record
        self._hooks = hooks
        self._publish = publish

    def hook(
        self,
        point: Point[E, A],
        handler: Callable[[E], A],
        *,
        priority: int = 0,
        required: bool | None = None,
        filters: Sequence[str] = (),
    ) -> None:
        """Register `handler` at `point`. Handlers with a higher priority run first. `required`: whether a failure of
        the handler, or a fenced plugin, counts as `Deny`; the default is the point's. `filters` are the topics of a
        message.publish handler.

        Raises ValueError for invalid arguments.
        """
        if point not in POINTS:
            raise ValueError(f"{point!r} is none of flockmq.plugins.POINTS")
        if inspect.iscoroutinefunction(handler):
            raise ValueError(f"the handler of {point} is a coroutine function; handlers answer at once")
        if bool(filters) != (point is MESSAGE_PUBLISH):
            raise ValueError(f"{point} {'has no' if filters else 'needs'} filters")
        if len(filters) > PLUGIN_FILTERS_MAX:
            raise ValueError(f"{len(filters)} filters of one handler; {PLUGIN_FILTERS_MAX} are the most")
        self._hooks.add(
            self._record,
            point,
            handler,
            priority,
            point.required if required is None else required,
            tuple(_filter(text) for text in filters),
        )

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> None:
        """Publish a message. message.publish handlers don't get it. Raises ValueError for an invalid topic or QoS."""
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS {qos}")
        name = topic.encode()
        try:
            check_topic_name(name)
        except PacketError as error:
            raise ValueError(str(error)) from None
        self._publish(name, payload, qos, retain)


class Plugin(Protocol):
    """The interface of a plugin. `name` must be that of its entry point."""

    name: str

    def start(self, context: Context) -> None:
        """Register the handlers. If it raises, the node doesn't start."""


@runtime_checkable
class Stops(Protocol):
    """A plugin with a `stop` method."""

    def stop(self) -> None: ...


class Plugins:
    """The enabled plugins of a node, in the order of the configuration."""

    def __init__(self, enabled: Sequence[str], clock: Clock = SYSTEM) -> None:
        """Load the plugins. Raises ConfigError if one isn't installed, UserError if one can't be loaded."""
        self.hooks = Hooks(clock.monotonic)
        self._loaded: list[tuple[Plugin, Record]] = []
        self._started: list[Plugin] = []
        installed = {point.name: point for point in entry_points(group=GROUP)} if enabled else {}
        for name in enabled:
            if name not in installed:
                known = f"installed: {', '.join(sorted(installed))}" if installed else "none is installed"
                raise ConfigError(f"plugins.enabled: no plugin {name!r} is installed; {known}")
            self._loaded.append((_load(installed[name]), self._record(installed[name])))

    def _record(self, point: EntryPoint) -> Record:
        record = Record(point.name, point.dist.version if point.dist is not None else "")
        self.hooks.plugins[record.name] = record
        return record

    def start(self, node: str, settings: Mapping[str, Mapping[str, object]], publish: Publish) -> None:
        """Start the plugins, which register their handlers. Raises UserError."""
        for name in sorted(settings.keys() - self.hooks.plugins.keys()):
            log.warning("plugins.settings.%s is for nobody: no plugin of this name is enabled", name)
        for plugin, record in self._loaded:
            context = Context(record, self.hooks, node, settings.get(record.name, {}), publish)
            try:
                plugin.start(context)
            except Exception as error:
                log.debug("plugin %s", record.name, exc_info=True)
                raise _failed(record.name, "start", error) from None
            self._started.append(plugin)
            log.info("plugin %s %s started", record.name, record.version)

    def stop(self) -> None:
        """Stop all plugins, in reverse order, even if one raises."""
        while self._started:
            plugin = self._started.pop()
            if isinstance(plugin, Stops):
                try:
                    plugin.stop()
                except Exception:
                    log.exception("plugin %s failed to stop", plugin.name)


def _load(point: EntryPoint) -> Plugin:
    try:
        plugin: Plugin = point.load()()
        named, starts = plugin.name, callable(plugin.start)
    except Exception as error:
        log.debug("plugin %s", point.name, exc_info=True)
        raise _failed(point.name, "load", error) from None
    if named != point.name or not starts:
        raise UserError(f"plugin {point.name} ({point.value}): its name is {named!r}; it must be the entry point's")
    return plugin


def _failed(name: str, what: str, error: Exception) -> UserError:
    return UserError(
        f"plugin {name} failed to {what}: {type(error).__name__}: {error}; mend it, or take it out of plugins.enabled"
    )


def _filter(text: str) -> bytes:
    topic_filter = text.encode()
    try:
        check_filter(topic_filter)
    except PacketError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if split_share(topic_filter)[0]:
        raise ValueError(f"{text!r}: a shared subscription; say the filter alone")
    return topic_filter
