from __future__ import annotations

import math
from pathlib import Path

from load import history


def test_a_history_that_was_saved_is_read_as_it_was(tmp_path: Path) -> None:
    will = history.Will(3, "base/will", 1)
    events: list[history.AnyEvent] = [
        history.Asked(1.25, "a", 1, "replicant-1", True, version=4, expiry_s=math.inf, will=will),
        history.Delivered(2.5, "a", 1, "b", 7, "base/1", 2, filters=("base/#",)),
        history.RetainedStood(3.0, "core-1", {"base/1": history.Message("b", 7)}),
    ]
    history.save(events, tmp_path / "history.jsonl")
    assert history.load(tmp_path / "history.jsonl") == events
