"""What comes was published: by a client, to that topic, or as the will that its CONNECT said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.story import Story
from judges.verdict import Finding, Rules

INVENTED: Final = "invented"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for delivered in story.invented:
        text = f"{delivered.client} got what {delivered.publisher} never sent: {delivered}"
        yield Finding(INVENTED, delivered.at, text)
