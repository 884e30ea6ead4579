"""The table of conformance: complete, and made from these tests."""

from __future__ import annotations

from conformance import table


def test_every_statement_of_a_server_is_tested_or_explained() -> None:
    assert table.complaints(table.held()) == []


def test_the_table_is_fresh() -> None:
    assert table.TABLE.read_text() == table.rendered(table.held()), "python tests/conformance/table.py --write"
