"""Plots: SVG elements that scale, whatever names are in them."""

import xml.etree.ElementTree as ET

from flockmq_analytics.plots import NODES_MAX, OTHERS, plots

from .made_day import BERLIN, HOSTILE, at, summary, tables


def words(svg: str) -> list[str]:
    return [text.strip() for text in ET.fromstring(svg).itertext() if text.strip()]


def test_each_plot_is_one_element_without_a_size() -> None:
    for svg in plots(summary(), tables(), [summary()], BERLIN).values():
        root = ET.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "viewBox" in root.attrib
        assert not {"width", "height"} & root.attrib.keys()
        assert "<metadata" not in svg


def test_names_are_text_and_no_markup() -> None:
    name = HOSTILE.strip()
    rows = [{"minute": at(5), "node": name, "connections": 3, "sessions": 3}]
    (svg, *_) = plots(summary(), tables(concurrency=rows), [], BERLIN).values()
    assert name in words(svg)
    assert "<script>" not in svg


def test_of_many_nodes_the_smallest_are_drawn_as_one() -> None:
    rows = [{"minute": at(5), "node": f"node-{n:02}", "connections": n, "sessions": 0} for n in range(NODES_MAX + 3)]
    (svg, *_) = plots(summary(), tables(concurrency=rows), [], BERLIN).values()
    shown = [word for word in words(svg) if word.startswith("node-") or word == OTHERS]
    assert shown == [*(f"node-{n:02}" for n in range(3, NODES_MAX + 3)), OTHERS]


def test_times_are_of_the_time_zone() -> None:
    rows = [{"minute": at(m), "node": "n", "connections": 1, "sessions": 1} for m in range(0, 24 * 60, 5)]
    (svg, *_) = plots(summary(), tables(concurrency=rows), [], BERLIN).values()
    assert "Nov-20" in words(svg)
    assert "12:00" in words(svg)


def test_a_day_with_one_minute_of_figures_is_a_day_all_the_same() -> None:
    """The axes of one point were years, and numbers about 0."""
    rows = [{"minute": at(12 * 60), "node": "n", "connections": 0, "sessions": 0}]
    minutes = [{"minute": at(12 * 60), "connects": 2, "disconnects": 0, "refused": 0}]
    connected, by_minute, *_ = plots(
        summary(), tables(concurrency=rows, minutes=minutes, storms=[]), [], BERLIN
    ).values()
    for svg in (connected, by_minute):
        assert {"03:00", "12:00", "21:00"} <= set(words(svg)), "hours of the time zone"
        numbers = [word for word in words(svg) if word.lstrip("\u2212-").isdigit()]
        assert numbers == sorted(set(numbers)), "each once, none below 0"
