"""Handlers: their order, what their answers do, and the fence around those that fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec
import pytest

from flockmq.bounds import PACKET_MAX_BYTES, PLUGIN_CALL_MAX_S, PLUGIN_FAILURES_MAX, PLUGIN_FAILURES_WINDOW_S
from flockmq.mqtt.reason import Reason
from flockmq.plugins import (
    CLIENT_AUTHENTICATE,
    CLIENT_CONNECTED,
    CLIENT_SUBSCRIBE,
    MESSAGE_PUBLISH,
    Allow,
    Client,
    Credentials,
    Deny,
    Message,
    Subscription,
)
from flockmq.plugins.dispatch import Hooks, Record

CLIENT = Client(client_id="c", username="u", host="127.0.0.1", port=1, listener="tcp:default", protocol=5)
SUBSCRIPTION = Subscription(client=CLIENT, filter="a/#", qos=1)


class Clock:
    """`worked_s` and `waits` are the thread's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.worked_s = 0.0
        self.waits = 0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hooks(clock: Clock) -> Hooks:
    made = Hooks(clock, lambda: (clock.worked_s, clock.waits))
    made.plugins["p"] = Record("p", "1.0")
    return made


def on_subscribe(
    hooks: Hooks,
    answer: Callable[[Subscription], Subscription | Deny | None],
    priority: int = 0,
    required: bool = False,
) -> None:
    hooks.add(hooks.plugins["p"], CLIENT_SUBSCRIBE, answer, priority, required, ())


def fail(event: object) -> None:
    raise RuntimeError("broken")


def test_a_point_without_handlers_leaves_the_event_as_it_is(hooks: Hooks) -> None:
    assert CLIENT_SUBSCRIBE not in hooks.placed
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) is SUBSCRIPTION
    hooks.notify(CLIENT_CONNECTED, CLIENT)


def test_the_highest_priority_comes_first_and_equals_in_the_order_they_came(hooks: Hooks) -> None:
    called: list[str] = []
    for name, priority in (("a", 0), ("b", 0), ("c", 10), ("d", -1)):
        hooks.add(hooks.plugins["p"], CLIENT_CONNECTED, lambda _, name=name: called.append(name), priority, False, ())
    hooks.notify(CLIENT_CONNECTED, CLIENT)
    assert called == ["c", "a", "b", "d"]


def test_a_changed_event_is_what_the_next_handler_gets(hooks: Hooks) -> None:
    seen: list[str] = []
    on_subscribe(hooks, lambda event: msgspec.structs.replace(event, filter="b/#"), priority=1)
    on_subscribe(hooks, lambda event: seen.append(event.filter))
    answer = hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION)
    assert isinstance(answer, Subscription)
    assert answer.filter == "b/#"
    assert seen == ["b/#"]


@pytest.mark.parametrize("verdict", [Allow(username="known"), Deny(0x97)])
def test_a_verdict_ends_the_questioning(hooks: Hooks, verdict: Allow | Deny) -> None:
    asked: list[Credentials] = []
    hooks.add(hooks.plugins["p"], CLIENT_AUTHENTICATE, lambda _: verdict, 1, True, ())
    hooks.add(hooks.plugins["p"], CLIENT_AUTHENTICATE, asked.append, 0, True, ())
    assert hooks.ask(CLIENT_AUTHENTICATE, Credentials(client=CLIENT, password=b"secret")) is verdict
    assert asked == []


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Credentials(client=CLIENT, password=b"secret"))


def test_what_a_failing_handler_counts_for(hooks: Hooks) -> None:
    on_subscribe(hooks, fail)
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) is SUBSCRIPTION
    on_subscribe(hooks, fail, required=True)
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) == Deny()


def test_an_answer_that_the_point_does_not_take_is_a_failure(hooks: Hooks) -> None:
    on_subscribe(hooks, lambda _: "b/#")  # type: ignore[arg-type, return-value]
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) is SUBSCRIPTION
    assert hooks.plugins["p"].last_failure == "TypeError: answered with str, at client.subscribe"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"topic": "a/+"}, "wildcard"),
        ({"topic": "$SYS/brokers"}, "where no client publishes"),
        ({"topic": "$other/x"}, "where no client publishes"),
        ({"qos": 2}, "another QoS"),
        ({"payload": bytes(PACKET_MAX_BYTES)}, "are the most"),
    ],
)
def test_a_message_that_cannot_be_published_is_a_failure(
    hooks: Hooks, change: dict[str, object], complaint: str
) -> None:
    told = Message(client=CLIENT, topic="a/b", payload=b"1", qos=1, retain=False)
    hooks.add(
        hooks.plugins["p"], MESSAGE_PUBLISH, lambda event: msgspec.structs.replace(event, **change), 0, False, (b"#",)
    )
    assert hooks.ask(MESSAGE_PUBLISH, told) is told
    assert complaint in hooks.plugins["p"].last_failure


def test_a_filter_that_cannot_be_subscribed_to_is_a_failure(hooks: Hooks) -> None:
    on_subscribe(hooks, lambda event: msgspec.structs.replace(event, filter="a/#/b"))
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) is SUBSCRIPTION


@pytest.mark.parametrize(("worked_s", "waits"), [(PLUGIN_CALL_MAX_S * 2, 0), (0.0, 1)])
def test_a_slow_answer_counts_and_is_a_failure(hooks: Hooks, clock: Clock, worked_s: float, waits: int) -> None:
    def slowly(event: Subscription) -> Deny:
        clock.now_s += PLUGIN_CALL_MAX_S * 2
        clock.worked_s += worked_s
        clock.waits += waits
        return Deny()

    on_subscribe(hooks, slowly)
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) == Deny()
    assert hooks.plugins["p"].last_failure == "took 10 ms, more than 5, at client.subscribe"
    assert hooks.plugins["p"].seconds == PLUGIN_CALL_MAX_S * 2


def test_a_denial_for_a_reason_that_is_none_is_a_failure(hooks: Hooks) -> None:
    on_subscribe(hooks, lambda _: Deny(Reason.SUCCESS), required=True)
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) == Deny()
    assert "isn't one of a failure" in hooks.plugins["p"].last_failure


def test_time_that_the_kernel_gave_to_others_is_no_failure(hooks: Hooks, clock: Clock) -> None:
    def preempted(event: Subscription) -> None:
        clock.now_s += PLUGIN_CALL_MAX_S * 2

    on_subscribe(hooks, preempted)
    hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION)
    assert hooks.plugins["p"].failures == 0


@pytest.mark.parametrize("idle", [True, False])
def test_a_handler_that_sleeps_or_works_too_long_is_seen(idle: bool) -> None:
    hooks = Hooks()
    hooks.plugins["p"] = Record("p", "1.0")

    def slowly(event: Subscription) -> None:
        until_s = time.thread_time() + PLUGIN_CALL_MAX_S * 2
        while not idle and time.thread_time() < until_s:
            pass
        if idle:
            time.sleep(PLUGIN_CALL_MAX_S * 2)

    on_subscribe(hooks, slowly)
    hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION)
    assert hooks.plugins["p"].failures == 1


def test_too_many_failures_fence_a_plugin_off_with_one_line(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    changes: list[None] = []
    on_subscribe(hooks, fail)
    hooks.on_change = lambda: changes.append(None)
    caplog.set_level(logging.ERROR)
    for _ in range(PLUGIN_FAILURES_MAX * 2):
        hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION)
    plugin = hooks.plugins["p"]
    assert plugin.state == "fenced"
    assert plugin.failures == PLUGIN_FAILURES_MAX
    assert CLIENT_SUBSCRIBE not in hooks.placed
    assert len(changes) == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("plugin p is fenced off: 10 failures within 60 s; the last: RuntimeError: broken, at client")
    assert line.endswith("POST /api/v1/plugins/p/enable")


def test_failures_far_apart_fence_nothing_off(hooks: Hooks, clock: Clock) -> None:
    on_subscribe(hooks, fail)
    for _ in range(PLUGIN_FAILURES_MAX * 3):
        clock.now_s += PLUGIN_FAILURES_WINDOW_S / (PLUGIN_FAILURES_MAX - 2)
        hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION)
    assert hooks.plugins["p"].state == "running"


def test_what_a_fenced_plugin_was_to_keep_out_stays_out_until_it_is_enabled(hooks: Hooks) -> None:
    broken = True

    def guard(event: Subscription) -> None:
        if broken:
            raise RuntimeError

    on_subscribe(hooks, guard, required=True)
    for _ in range(PLUGIN_FAILURES_MAX + 1):
        assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) == Deny()
    assert hooks.plugins["p"].state == "fenced"
    assert CLIENT_SUBSCRIBE in hooks.placed
    calls = hooks.plugins["p"].calls
    broken = False
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) == Deny()
    assert hooks.plugins["p"].calls == calls
    assert hooks.enable("p")
    assert hooks.ask(CLIENT_SUBSCRIBE, SUBSCRIPTION) is SUBSCRIPTION
    assert not hooks.enable("nobody")
