"""The manifest: events and offsets together, and what is tidied up."""

from datetime import date

from flockmq_analytics.manifest import Added, DataFile, Malformed, Manifest

MONDAY, TUESDAY = "2026-11-16", "2026-11-17"


def added(until: str, days: dict[str, int], malformed: int = 0) -> Added:
    files = {day: [DataFile(f"{until}.parquet", rows)] for day, rows in days.items()}
    return Added(until, files, Malformed(malformed, f"bad at {until}" if malformed else ""), TUESDAY)


def test_an_ingest_adds_its_files_and_moves_its_offset() -> None:
    first = Manifest().with_ingest({"lag": added("5-0", {MONDAY: 3}), "nodes": added("6-0", {MONDAY: 1})})
    second = first.with_ingest({"lag": added("9-1", {MONDAY: 2, TUESDAY: 4})})
    assert second.offsets == {"lag": "9-1", "nodes": "6-0"}
    assert second.of_day("lag", date(2026, 11, 16)) == [DataFile("5-0.parquet", 3), DataFile("9-1.parquet", 2)]
    assert second.of_day("lag", date(2026, 11, 17)) == [DataFile("9-1.parquet", 4)]
    assert second.of_day("refusals", date(2026, 11, 17)) == []
    assert (first.number, second.number) == (1, 2)
    assert first.offsets["lag"] == "5-0", "it is as it was"


def test_malformed_ones_are_counted_by_the_day_of_the_ingest() -> None:
    manifest = Manifest()
    for until, malformed in (("1-0", 0), ("2-0", 2), ("3-0", 1)):
        manifest = manifest.with_ingest({"lag": added(until, {}, malformed)})
    assert manifest.malformed == {"lag": {TUESDAY: Malformed(3, "bad at 2-0")}}


def test_a_day_that_got_events_since_its_report_is_known_by_it() -> None:
    manifest = Manifest().with_ingest({"lag": added("1-0", {MONDAY: 1, TUESDAY: 1})})
    manifest = manifest.with_report([MONDAY, TUESDAY])
    assert manifest.reported == {MONDAY: 1, TUESDAY: 1}
    manifest = manifest.with_ingest({"lag": added("2-0", {MONDAY: 1})})
    assert manifest.changed == {MONDAY: 2, TUESDAY: 1}


def test_compaction_changes_files_and_no_day() -> None:
    manifest = Manifest().with_ingest({"lag": added("1-0", {MONDAY: 1, TUESDAY: 2})}).with_report([MONDAY, TUESDAY])
    compacted = manifest.with_compacted("lag", MONDAY, [DataFile("one", 1)])
    assert compacted.files == {"lag": {MONDAY: [DataFile("one", 1)], TUESDAY: [DataFile("1-0.parquet", 2)]}}
    assert compacted.number == manifest.number + 1
    assert compacted.changed == manifest.changed


def test_old_days_go_and_offsets_stay() -> None:
    manifest = Manifest().with_ingest({"lag": added("1-0", {MONDAY: 1, TUESDAY: 2}, 1)}).with_report([MONDAY])
    kept = manifest.without_days_before(date(2026, 11, 17))
    assert list(kept.files["lag"]) == list(kept.changed) == [TUESDAY]
    assert kept.reported == {}
    assert kept.offsets == {"lag": "1-0"}
