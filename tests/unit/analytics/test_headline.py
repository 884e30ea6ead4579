"""The headline: the figures of the last day that is over, within what Kubernetes keeps of a pod's last words."""

import json

import msgspec

from flockmq_analytics.headline import HEADLINE_MAX_BYTES, headline

from .made_day import HOSTILE, NOTHING, summary


def test_it_is_of_the_last_day_that_is_over() -> None:
    days = [summary(day=f"2026-11-{day}", is_over=day < 20) for day in (18, 19, 20)]
    told = json.loads(headline(days))
    assert (told["day"], told["isOver"]) == ("2026-11-19", True)
    assert json.loads(headline(days[2:]))["isOver"] is False
    assert headline([]) == b""


def test_it_has_the_main_figures_and_nothing_that_clients_say() -> None:
    line = headline([summary()])
    told = json.loads(line)
    assert told["peakConnections"] == 400
    assert told["clients"] == 50
    assert told["worstLagMs"] == 4000
    assert told["lostEvents"] == 10
    assert b"\n" not in line
    assert HOSTILE.encode() not in line


def test_what_nobody_knows_is_left_out() -> None:
    told = json.loads(headline([summary(made=NOTHING)]))
    assert "peakConnections" not in told
    assert "worstLagMs" not in told


def test_sentences_are_left_out_that_it_has_no_room_for() -> None:
    long = msgspec.structs.replace(summary(), changed=[f"{n} " + "ü" * 700 for n in range(9)])
    line = headline([long])
    assert 3000 < len(line) <= HEADLINE_MAX_BYTES
    assert [sentence[0] for sentence in json.loads(line)["changed"]] == ["0", "1"]
