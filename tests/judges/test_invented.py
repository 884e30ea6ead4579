"""The judge of inventions: what comes was published."""

from __future__ import annotations

from judges.judge import INVENTED
from judges.made_up import begun


def test_what_nobody_sent_is_found() -> None:
    script = begun()
    script.deliver("sub", "pub", 7)
    script.publish("pub", 8, topic="other")
    script.deliver("sub", "pub", 8)
    assert script.found() == {INVENTED: 2}
