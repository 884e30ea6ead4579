"""The page: whole, by itself, and nobody's names are markup."""

from html.parser import HTMLParser

import pytest

from flockmq_analytics.page import duration, page, text
from flockmq_analytics.plots import plots

from .made_day import BERLIN, HOSTILE, NOTHING, summary, tables


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith("#")]

    def handle_data(self, data: str) -> None:
        self.text += data


def made(earlier: bool = False) -> Elements:
    before = [summary()] if earlier else []
    day = summary(earlier=before)
    return Elements(page(day, tables(), plots(day, tables(), before, BERLIN), BERLIN))


def test_the_page_needs_nothing_from_outside_and_runs_nothing() -> None:
    read = made(earlier=True)
    assert read.outside == []
    assert not {"script", "link", "iframe", "img"} & set(read.tags)
    assert read.tags.count("svg") == 6
    assert HOSTILE.strip() in read.text, "it is shown as it is"


def test_the_page_tells_figures_notes_and_tables() -> None:
    read = made()
    for said in (
        "FlockMQ, 2026-11-20",
        "400connected at the peak",
        "10 events of lag were lost, 2 of them at their nodes, which had no room for them.",
        "2 events of nodes couldn't be read; one of them: entry 5-0: bad.",
        "Reconnect storms",
        "00:10:00",
        "0x87 not authorized",
    ):
        assert said in read.text


def test_a_day_without_events_is_a_page_all_the_same() -> None:
    day = summary(NOTHING)
    assert plots(day, NOTHING, [], BERLIN) == {}
    read = Elements(page(day, NOTHING, {}, BERLIN))
    assert "0distinct clients" in read.text
    assert "-connected at the peak" in read.text


def test_the_same_day_is_the_same_page() -> None:
    pages = [page(summary(), tables(), plots(summary(), tables(), [], BERLIN), BERLIN) for _ in range(2)]
    assert pages[0] == pages[1]


def test_the_text_has_the_nodes_and_the_lag_and_a_name_makes_no_row() -> None:
    hours = [{**row, "node": "a|b\nc"} for row in tables()["hours"][:1]]
    said = text(summary(), tables(hours=hours))
    rows = [[cell.strip() for cell in line.split("|")] for line in said.replace("\\|", "/").splitlines()]
    assert [row[1:4] for row in rows if len(row) == 9][2:5] == [
        ["a/b c", "-", "60"],
        ["core-0", "100", "0"],
        ["core-1", "300", "0"],
    ]
    assert "| route | 360 " in said.partition("## Replication lag by shard")[2]
    assert "None." in text(summary(NOTHING), NOTHING)


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, "-"), (0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (2**40, "12725.8 d")],
)
def test_durations_are_in_the_unit_that_suits_them(ms: int | None, said: str) -> None:
    assert duration(ms) == said
