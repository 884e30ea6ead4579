"""The output: whole files, and only what the manifest names; one writer at a time."""

import threading
import time
from datetime import date
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from flockmq_analytics.local_storage import LocalStorage
from flockmq_analytics.manifest import Added, DataFile, Malformed, Manifest
from flockmq_analytics.output import (
    GRACE_S,
    MANIFEST,
    commit,
    data_file,
    expire_reports,
    load,
    point_latest,
    publish_partitions,
    publish_report,
    report,
    reports_before,
    summaries,
    sweep,
    write_report,
)
from flockmq_analytics.storage import STAGING, OutputError

from .made_day import summary

MONDAY, TUESDAY = "2026-11-16", "2026-11-17"


@pytest.fixture
def output(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "output")


def write(path: Path, rows: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(range(rows))}), path)


def test_a_second_writer_is_refused(output: LocalStorage) -> None:
    with output.locked(), pytest.raises(OutputError, match="another run is writing"), output.locked():
        pass


def test_a_second_writer_may_wait_for_the_first(output: LocalStorage) -> None:
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with output.locked():
            holds.set()
            ends.wait(10)

    first = threading.Thread(target=hold)
    first.start()
    holds.wait(10)
    threading.Timer(0.2, ends.set).start()
    with output.locked(wait_s=10) as staging:
        assert ends.is_set()
        assert output.found(staging) == []
    first.join()


def test_staging_is_empty_at_the_start_and_gone_at_the_end(output: LocalStorage) -> None:
    write(output.path(f"{STAGING}/left/behind"))
    with output.locked():
        assert output.found(STAGING) == []
    assert not output.path(STAGING).exists()


def test_an_output_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = LocalStorage(tmp_path / "file" / "output")
    with pytest.raises(OutputError, match="can't be written: Not a directory"), output.locked():
        pass


def test_files_are_published_by_day_and_count_once_the_manifest_names_them(output: LocalStorage) -> None:
    with output.locked() as staging:
        for name, day, rows in (("part-0", MONDAY, 1), ("part-1", MONDAY, 2), ("part-0", TUESDAY, 3)):
            write(output.path(f"{staging}/lag/date={day}/{name}.parquet"), rows)
        files = publish_partitions(f"{staging}/lag", output, "lag", 7)
        run = staging.rpartition("/")[2]
        assert files == {
            MONDAY: [DataFile(f"00000007-0-{run}.parquet", 1), DataFile(f"00000007-1-{run}.parquet", 2)],
            TUESDAY: [DataFile(f"00000007-0-{run}.parquet", 3)],
        }
        assert load(output) == Manifest()
        manifest = Manifest().with_ingest({"lag": Added("1-0", files, Malformed(), TUESDAY)})
        commit(staging, output, manifest)
    assert load(output) == manifest
    assert all(output.path(data_file("lag", day, file)).exists() for day in files for file in files[day])


def test_a_manifest_that_cannot_be_read_is_never_taken_for_an_empty_one(output: LocalStorage) -> None:
    output.write(MANIFEST, b"{")
    with pytest.raises(OutputError, match="can't be read"):
        load(output)
    output.write(MANIFEST, b'{"version": 2}')
    with pytest.raises(OutputError, match="which a newer release wrote"):
        load(output)
    output.write(MANIFEST, b'{"number": 3, "later": {}}')
    assert load(output) == Manifest(number=3)


def test_files_that_do_not_count_are_removed_when_no_reader_can_be_at_them(output: LocalStorage) -> None:
    counts = DataFile("00000001-0.parquet", 1)
    for day, name in ((MONDAY, "00000001-0"), (MONDAY, "00000002-0"), (TUESDAY, "00000001-0")):
        write(output.path(data_file("lag", day, DataFile(f"{name}.parquet", 1))))
    manifest = Manifest(files={"lag": {MONDAY: [counts]}})
    now_s = time.time()
    assert sweep(output, ["lag", "nodes"], manifest, now_s) == 0
    assert sweep(output, ["lag", "nodes"], manifest, now_s + GRACE_S + 60) == 2
    left = [path.relative_to(output.root).as_posix() for path in output.path("lag").rglob("*")]
    assert sorted(left) == [f"lag/date={MONDAY}", f"lag/date={MONDAY}/{counts.name}"]


def publish_text(output: LocalStorage, staging: str, day: date, text: str) -> None:
    folder = f"{staging}/report-{day}"
    write_report(output, folder, summary(day=str(day)), text, "<html>")
    publish_report(output, folder, day)


def test_a_report_takes_the_place_of_the_one_before(output: LocalStorage) -> None:
    day = date(2026, 11, 20)
    with output.locked() as staging:
        publish_text(output, staging, day, "old")
        publish_text(output, staging, day, "new")
    kept = sorted(path.name for path in output.path(report(day)).iterdir())
    assert kept == ["_SUCCESS", "report.html", "report.md", "summary.json"]
    assert output.read(f"{report(day)}/report.md") == b"new"


def test_earlier_reports_that_are_whole_are_found_and_compared_with(output: LocalStorage) -> None:
    days = [date(2026, 11, day) for day in (12, 13, 19, 20, 21)]
    with output.locked() as staging:
        for day in days:
            publish_text(output, staging, day, "")
    output.remove([f"{report(days[1])}/_SUCCESS"])
    assert reports_before(output, days[3]) == [report(day) for day in (days[2], days[0])]
    assert [one.day for one in summaries(output, days[3], 7)] == ["2026-11-19"]
    output.write(f"{report(days[2])}/summary.json", b"{}")
    assert summaries(output, days[3], 7) == []
    assert [one.day for one in summaries(output, days[3], 8)] == ["2026-11-12"]


def test_latest_leads_to_a_report_and_old_ones_go(output: LocalStorage) -> None:
    days = [date(2026, 11, day) for day in (19, 20)]
    with output.locked() as staging:
        for day in days:
            publish_text(output, staging, day, str(day))
            point_latest(output, str(day))
            assert output.read("reports/latest/report.md").decode() == str(day)
    point_latest(output, "2026-11-21")
    point_latest(output, "")
    assert output.read("reports/latest/report.md") == b"2026-11-20"
    expire_reports(output, days[1])
    assert sorted(path.name for path in output.path("reports").iterdir()) == ["date=2026-11-20", "latest"]
