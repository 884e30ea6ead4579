"""The table of conformance: complete, and made from these tests."""

from __future__ import annotations

import re
from pathlib import Path

from conformance import table
from conformance.statement import KNOWN

SOURCES = Path(__file__).parents[2] / "broker" / "src"


def test_every_statement_of_a_server_is_tested_or_explained() -> None:
    assert table.complaints(table.held()) == []


def test_the_table_is_fresh() -> None:
    assert table.TABLE.read_text() == table.rendered(table.held()), "python tests/conformance/table.py --write"


def test_the_sources_cite_statements_that_exist() -> None:
    known = {number for statements in KNOWN.values() for number in statements}
    cited = {
        number
        for file in SOURCES.rglob("*.py")
        for number in re.findall(r"MQTT-[0-9][0-9.-]*-[0-9]+", file.read_text())
    }
    assert len(cited) > 50
    assert cited <= known
