"""The output directory: one writer at a time, whole files, and only what the manifest names."""

import threading
import time
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
    load,
    locked,
    publish_partitions,
    sweep,
)

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
