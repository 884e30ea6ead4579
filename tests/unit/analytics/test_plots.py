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
