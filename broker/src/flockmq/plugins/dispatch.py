"""Calls the handlers of all plugins, and disables (fences) plugins that fail too often.

Invariants:
- A point without handlers costs one dict look-up.
- A handler fails if it raises, returns an invalid answer, or takes longer than `PLUGIN_CALL_MAX_S`. Time in which the
  kernel ran other threads doesn't count, so a busy machine doesn't make handlers fail.
- After `PLUGIN_FAILURES_MAX` failures within `PLUGIN_FAILURES_WINDOW_S` the plugin is fenced until somebody enables it
  again.
- The handlers of a fenced plugin aren't called. Its *required* handlers then count as `Deny`, so clients that the
  plugin would refuse stay refused.

Handlers run on the node's event loop, synchronously. Those of the highest priority run first; those of equal priority
in the order of registration.
"""

from __future__ import annotations

import logging
import resource
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from flockmq.bounds import PLUGIN_CALL_MAX_S, PLUGIN_FAILURES_MAX, PLUGIN_FAILURES_WINDOW_S
from flockmq.clock import SYSTEM
from flockmq.default_callbacks import ignore
from flockmq.plugins.points import A, Allow, Deny, E, Point

log: Final = logging.getLogger(__name__)

State = Literal["running", "fenced"]
_DENIED: Final = Deny()


class Record:
    """A configured plugin with its statistics. `seconds` is the total time of its handlers."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.state: State = "running"
        self.calls = 0
        self.seconds = 0.0
        self.failures = 0
        self.last_failure = ""
        self.recent: deque[float] = deque(maxlen=PLUGIN_FAILURES_MAX)


class Handler:
    """One handler of one plugin at one point. `filters` are its topics, at message.publish."""

    __slots__ = ("call", "filters", "order", "plugin", "point", "required")

    def __init__(
        self,
        plugin: Record,
        point: Point[E, A],
        call: Callable[[E], A],
        required: bool,
        order: tuple[int, int],
        filters: tuple[bytes, ...],
    ) -> None:
        self.plugin = plugin
        self.point: Point[msgspec.Struct, object] = point  # type: ignore[assignment]  # its event is the point's
        self.call: Callable[[msgspec.Struct], object] = call  # type: ignore[assignment]
        self.required = required
        self.order = order
        self.filters = filters


class Hooks:
    """`placed` maps points to their active handlers; points without any are missing. `on_change` is called when the
    active handlers change. `usage` returns the CPU seconds of this thread and the number of its voluntary context
    switches."""

    def __init__(
        self, clock: Callable[[], float] = SYSTEM.monotonic, usage: Callable[[], tuple[float, int]] | None = None
    ) -> None:
        self.on_change: Callable[[], None] = ignore
        self.plugins: dict[str, Record] = {}
        self._clock = clock
        self._usage = usage or _usage
        self._all: list[Handler] = []
        self.placed: dict[object, tuple[Handler, ...]] = {}

    def at(self, point: Point[E, A]) -> tuple[Handler, ...]:
        """The active handlers of a point, in order."""
        return self.placed.get(point, ())

    def add(
        self,
        plugin: Record,
        point: Point[E, A],
        call: Callable[[E], A],
        priority: int,
        required: bool,
        filters: tuple[bytes, ...],
    ) -> None:
        self._all.append(Handler(plugin, point, call, required, (-priority, len(self._all)), filters))
        self._place()

    def notify(self, point: Point[E, A], event: E) -> None:
        """Notify the handlers of an event."""
        for handler in self.at(point):
            self._call(handler, event)

    def ask(self, point: Point[E, A], event: E) -> E | Allow | Deny:
        """Ask the handlers. Returns `Allow`, `Deny`, or the event, which they may have changed."""
        return self.ask_all(self.at(point), event)

    def ask_all(self, handlers: Iterable[Handler], event: E) -> E | Allow | Deny:
        """Like `ask`, but asks only these handlers, in this order."""
        for handler in handlers:
            answer = self._call(handler, event)
            if answer is None:
                continue
            if isinstance(answer, Allow | Deny):
                return answer
            assert isinstance(answer, type(event)), "it was checked"
            event = answer
        return event

    def points_of(self, plugin: Record) -> list[str]:
        """The points at which the plugin has handlers, active or not."""
        return list(dict.fromkeys(handler.point.name for handler in self._all if handler.plugin is plugin))

    def enable(self, name: str) -> bool:
        """Enable a fenced plugin again. Returns False if there is no such plugin."""
        plugin = self.plugins.get(name)
        if plugin is None:
            return False
        if plugin.state != "running":
            log.info("plugin %s is enabled again", name)
            plugin.state = "running"
            plugin.recent.clear()
            self._place()
        return True

    def _place(self) -> None:
        chains: dict[object, list[Handler]] = {}
        for handler in sorted(self._all, key=lambda handler: handler.order):
            if handler.required or handler.plugin.state == "running":
                chains.setdefault(handler.point, []).append(handler)
        self.placed.clear()
        self.placed.update((point, tuple(chain)) for point, chain in chains.items())
        self.on_change()

    def _call(self, handler: Handler, event: msgspec.Struct) -> object:
        plugin = handler.plugin
        if plugin.state != "running":
            return _DENIED if handler.required else None
        worked_s, waits = self._usage()
        began_s = self._clock()
        answer: object = None
        failure = ""
        try:
            answer = handler.call(event)
            _check(handler.point, event, answer)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            log.warning("plugin %s failed at %s", plugin.name, handler.point, exc_info=True)
        took_s = self._clock() - began_s
        plugin.calls += 1
        plugin.seconds += took_s
        if failure:
            answer = _DENIED if handler.required else None
        elif took_s > PLUGIN_CALL_MAX_S:
            worked_to_s, waits_to = self._usage()
            if waits_to > waits or worked_to_s - worked_s > PLUGIN_CALL_MAX_S:
                failure = f"took {took_s * 1000:.0f} ms, more than {PLUGIN_CALL_MAX_S * 1000:.0f}"
        if failure:
            self._failed(plugin, f"{failure}, at {handler.point}", began_s)
        return answer

    def _failed(self, plugin: Record, failure: str, now_s: float) -> None:
        plugin.failures += 1
        plugin.last_failure = failure
        recent = plugin.recent
        recent.append(now_s)
        if len(recent) == PLUGIN_FAILURES_MAX and now_s - recent[0] <= PLUGIN_FAILURES_WINDOW_S:
            plugin.state = "fenced"
            self._place()
            log.error(
                "plugin %s is fenced off: %d failures within %d s; the last: %s; to try it again: "
                "POST /api/v1/plugins/%s/enable",
                *(plugin.name, PLUGIN_FAILURES_MAX, PLUGIN_FAILURES_WINDOW_S, failure, plugin.name),
            )


def _check(point: Point[msgspec.Struct, object], event: msgspec.Struct, answer: object) -> None:
    """Raises an exception for an invalid answer."""
    if answer is None or answer is event:
        return
    if not isinstance(answer, point.answers):
        raise TypeError(f"answered with {type(answer).__name__}")
    if point.check is not None and isinstance(answer, type(event)):
        point.check(event, answer)


def _usage() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw
