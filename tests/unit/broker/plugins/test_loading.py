"""Plugins are found by their entry points, started with a context, and stopped; what is wrong is said at the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from flockmq.errors import ConfigError, UserError
from flockmq.plugins import CLIENT_CONNECTED, MESSAGE_PUBLISH, Context, loading, points
from flockmq.plugins.loading import Plugins

Sent = list[tuple[bytes, bytes, int, bool]]


class Recording:
    name = "recording"
    log: ClassVar[list[object]] = []

    def start(self, context: Context) -> None:
        self.log.append(context)

    def stop(self) -> None:
        self.log.append("stopped")


class Mute:
    """Says neither what it hooks to nor that it wants to stop."""

    name = "mute"

    def start(self, context: Context) -> None:
        pass


class Broken:
    name = "broken"

    def start(self, context: Context) -> None:
        raise RuntimeError("no database")


class Unmakeable:
    name = "unmakeable"

    def __init__(self) -> None:
        raise ValueError("never")


class Liar:
    name = "somebody else"

    def start(self, context: Context) -> None:
        pass


class Point:
    """An entry point of a package that has no files."""

    dist = None

    def __init__(self, name: str, plugin: type | None) -> None:
        self.name = name
        self.value = f"package:{name}"
        self._plugin = plugin

    def load(self) -> type:
        if self._plugin is None:
            raise AttributeError("module 'package' has no attribute 'missing'")
        return self._plugin


INSTALLED = (
    Point("recording", Recording),
    Point("mute", Mute),
    Point("broken", Broken),
    Point("unmakeable", Unmakeable),
    Point("liar", Liar),
    Point("missing", None),
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "entry_points", lambda group: INSTALLED)
    Recording.log.clear()


def start(*names: str, settings: dict[str, dict[str, object]] | None = None, sent: Sent | None = None) -> Plugins:
    plugins = Plugins(names)
    plugins.start("node-1", settings or {}, lambda *message: None if sent is None else sent.append(message))
    return plugins


def test_a_plugin_is_started_with_its_settings_and_stopped(caplog: pytest.LogCaptureFixture) -> None:
    plugins = start("recording", "mute", settings={"recording": {"a": 1}, "other": {"b": 2}})
    plugins.stop()
    context, stopped = Recording.log
    assert isinstance(context, Context)
    assert (context.name, context.node, context.settings) == ("recording", "node-1", {"a": 1})
    assert stopped == "stopped"
    assert "plugins.settings.other is for nobody" in caplog.text


@pytest.mark.parametrize(
    ("name", "error", "complaint"),
    [
        ("nobody", ConfigError, "plugins.enabled: no plugin 'nobody' is installed; installed: broken, liar"),
        ("broken", UserError, "plugin broken failed to start: RuntimeError: no database; mend it, or take it out"),
        ("unmakeable", UserError, "plugin unmakeable failed to load: ValueError: never"),
        ("missing", UserError, "plugin missing failed to load: AttributeError"),
        ("liar", UserError, "its name is 'somebody else'; it must be the entry point's"),
    ],
)
def test_a_plugin_that_cannot_run_keeps_the_node_from_starting(
    name: str, error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        start(name)


def a_context(sent: Sent | None = None) -> Context:
    start("recording", sent=sent)
    context = Recording.log[0]
    assert isinstance(context, Context)
    return context


async def coroutine(event: object) -> None: ...


def nothing(event: object) -> None: ...


@pytest.mark.parametrize(
    ("point", "handler", "filters", "complaint"),
    [
        (CLIENT_CONNECTED, coroutine, (), "is a coroutine function; handlers answer at once"),
        (CLIENT_CONNECTED, nothing, ("a",), "client.connected has no filters"),
        (MESSAGE_PUBLISH, nothing, (), "message.publish needs filters"),
        (MESSAGE_PUBLISH, nothing, ("a/#/b",), "'a/#/b': '#' that isn't the whole last level"),
        (MESSAGE_PUBLISH, nothing, ("$share/g/a",), "a shared subscription; say the filter alone"),
        (MESSAGE_PUBLISH, nothing, ("a",) * 257, "257 filters of one handler; 256 are the most"),
        (points.Point("my.own"), nothing, (), "my.own is none of"),
    ],
)
def test_what_cannot_be_hooked_is_refused(
    point: points.Point[Any, Any], handler: Callable[[Any], Any], filters: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        a_context().hook(point, handler, filters=filters)


def test_a_plugin_can_send_messages() -> None:
    sent: Sent = []
    context = a_context(sent)
    context.publish("a/b", b"hello", qos=1, retain=True)
    assert sent == [(b"a/b", b"hello", 1, True)]
    with pytest.raises(ValueError, match="wildcard"):
        context.publish("a/+", b"")
    with pytest.raises(ValueError, match="QoS 3"):
        context.publish("a", b"", qos=3)
