"""The output directory: one writer at a time, whole files, and only what the manifest names."""

import threading
import time
from datetime import date
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from flockmq_analytics.manifest import Added, DataFile, Malformed, Manifest
from flockmq_analytics.output import (
    GRACE_S,
    MANIFEST,
    STAGING,
    OutputError,
    commit,
    data_file,
    expire_reports,
    load,
    locked,
    point_latest,
    publish_partitions,
    publish_report,
    report,
    reports_before,
    summaries,
    sweep,
    write_report,
)

from .made_day import summary

MONDAY, TUESDAY = "2026-11-16", "2026-11-17"


def write(path: Path, rows: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(range(rows))}), path)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(OutputError, match="another run is writing"), locked(tmp_path):
        pass


def test_a_second_writer_may_wait_for_the_first(tmp_path: Path) -> None:
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path):
            holds.set()
            ends.wait(10)

    first = threading.Thread(target=hold)
    first.start()
    holds.wait(10)
    threading.Timer(0.2, ends.set).start()
    with locked(tmp_path, wait_s=10) as staging:
        assert ends.is_set()
        assert list(staging.iterdir()) == []
    first.join()


def test_staging_is_empty_at_the_start_and_gone_at_the_end(tmp_path: Path) -> None:
    write(tmp_path / STAGING / "left" / "behind")
    with locked(tmp_path) as staging:
        assert list(staging.iterdir()) == []
    assert not staging.exists()


def test_an_output_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't be written: Not a directory"), locked(tmp_path / "file" / "output"):
        pass


def test_files_are_published_by_day_and_count_once_the_manifest_names_them(tmp_path: Path) -> None:
    with locked(tmp_path) as staging:
        for name, day, rows in (("part-0", MONDAY, 1), ("part-1", MONDAY, 2), ("part-0", TUESDAY, 3)):
            write(staging / "lag" / f"date={day}" / f"{name}.parquet", rows)
        files = publish_partitions(staging / "lag", tmp_path, "lag", 7)
        assert files == {
            MONDAY: [DataFile("00000007-0.parquet", 1), DataFile("00000007-1.parquet", 2)],
            TUESDAY: [DataFile("00000007-0.parquet", 3)],
        }
        assert load(tmp_path) == Manifest()
        manifest = Manifest().with_ingest({"lag": Added("1-0", files, Malformed(), TUESDAY)})
        commit(staging, tmp_path, manifest)
    assert load(tmp_path) == manifest
    assert all(data_file(tmp_path, "lag", day, file).exists() for day in files for file in files[day])


def test_a_manifest_that_cannot_be_read_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(OutputError, match="can't be read"):
        load(tmp_path)
    (tmp_path / MANIFEST).write_text('{"version": 2}')
    with pytest.raises(OutputError, match="which a newer release wrote"):
        load(tmp_path)
    (tmp_path / MANIFEST).write_text('{"number": 3, "later": {}}')
    assert load(tmp_path) == Manifest(number=3)


def test_files_that_do_not_count_are_removed_when_no_reader_can_be_at_them(tmp_path: Path) -> None:
    counts = DataFile("00000001-0.parquet", 1)
    for day, name in ((MONDAY, "00000001-0"), (MONDAY, "00000002-0"), (TUESDAY, "00000001-0")):
        write(data_file(tmp_path, "lag", day, DataFile(f"{name}.parquet", 1)))
    manifest = Manifest(files={"lag": {MONDAY: [counts]}})
    now_s = time.time()
    assert sweep(tmp_path, ["lag", "nodes"], manifest, now_s) == 0
    assert sweep(tmp_path, ["lag", "nodes"], manifest, now_s + GRACE_S + 60) == 2
    left = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "lag").rglob("*")]
    assert sorted(left) == [f"lag/date={MONDAY}", f"lag/date={MONDAY}/{counts.name}"]


def staged_report(staging: Path, day: date, text: str) -> Path:
    folder = staging / f"report-{day}"
    folder.mkdir()
    write_report(folder, summary(day=str(day)), text, "<html>")
    return folder


def test_a_report_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    day = date(2026, 11, 20)
    with locked(tmp_path) as staging:
        publish_report(staged_report(staging, day, "old"), tmp_path, day)
        publish_report(staged_report(staging, day, "new"), tmp_path, day)
    kept = sorted(path.name for path in report(tmp_path, day).iterdir())
    assert kept == ["_SUCCESS", "report.html", "report.md", "summary.json"]
    assert (report(tmp_path, day) / "report.md").read_text() == "new"


def test_earlier_reports_that_are_whole_are_found_and_compared_with(tmp_path: Path) -> None:
    days = [date(2026, 11, day) for day in (12, 13, 19, 20, 21)]
    with locked(tmp_path) as staging:
        for day in days:
            publish_report(staged_report(staging, day, ""), tmp_path, day)
    (report(tmp_path, days[1]) / "_SUCCESS").unlink()
    assert reports_before(tmp_path, days[3]) == [report(tmp_path, day) for day in (days[2], days[0])]
    assert [one.day for one in summaries(tmp_path, days[3], 7)] == ["2026-11-19"]
    (report(tmp_path, days[2]) / "summary.json").write_text("{}")
    assert summaries(tmp_path, days[3], 7) == []
    assert [one.day for one in summaries(tmp_path, days[3], 8)] == ["2026-11-12"]


def test_latest_leads_to_a_report_and_old_ones_go(tmp_path: Path) -> None:
    days = [date(2026, 11, day) for day in (19, 20)]
    with locked(tmp_path) as staging:
        for day in days:
            publish_report(staged_report(staging, day, str(day)), tmp_path, day)
            point_latest(tmp_path, str(day))
            assert (tmp_path / "reports" / "latest" / "report.md").read_text() == str(day)
    point_latest(tmp_path, "2026-11-21")
    point_latest(tmp_path, "")
    assert (tmp_path / "reports" / "latest" / "report.md").read_text() == "2026-11-20"
    expire_reports(tmp_path, days[1])
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == ["date=2026-11-20", "latest"]
