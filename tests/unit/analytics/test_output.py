"""The output directory: one writer at a time, whole files, other days untouched."""

from datetime import date
from pathlib import Path

import pytest

from flockmq_analytics.output import (
    STAGING,
    OutputError,
    expire,
    locked,
    partition_file,
    partition_files,
    publish_partitions,
)

MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(OutputError, match="another run is writing"), locked(tmp_path):
        pass


def test_staging_is_empty_at_the_start_and_gone_at_the_end(tmp_path: Path) -> None:
    write(tmp_path / STAGING / "left" / "behind", "by a killed run")
    with locked(tmp_path) as staging:
        assert list(staging.iterdir()) == []
    assert not staging.exists()


def test_an_output_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(OutputError, match="can't be written: Not a directory"), locked(tmp_path / "file" / "output"):
        pass


def test_publishing_replaces_the_staged_days_and_no_other(tmp_path: Path) -> None:
    for day in (MONDAY, TUESDAY):
        write(partition_file(tmp_path, "lag", day), "old")
    write(tmp_path / "staged" / f"date={TUESDAY}" / "part-00000.parquet", "new")
    publish_partitions(tmp_path / "staged", tmp_path, "lag")
    assert [path.read_text() for path in partition_files(tmp_path, "lag", [MONDAY, TUESDAY])] == ["old", "new"]


def test_a_reader_that_has_the_old_file_open_keeps_it_whole(tmp_path: Path) -> None:
    write(partition_file(tmp_path, "lag", MONDAY), "old")
    write(tmp_path / "staged" / f"date={MONDAY}" / "part-00000.parquet", "new")
    with partition_file(tmp_path, "lag", MONDAY).open() as reader:
        publish_partitions(tmp_path / "staged", tmp_path, "lag")
        assert reader.read() == "old"


def test_only_partitions_before_the_given_day_expire(tmp_path: Path) -> None:
    for day in (MONDAY, TUESDAY):
        write(partition_file(tmp_path, "lag", day), "")
    write(tmp_path / "lag" / "date=someday" / "mine", "")
    assert expire(tmp_path, "lag", before=TUESDAY) == 1
    assert sorted(path.name for path in (tmp_path / "lag").iterdir()) == [f"date={TUESDAY}", "date=someday"]


def test_nothing_expires_where_nothing_was_written(tmp_path: Path) -> None:
    assert expire(tmp_path, "lag", before=TUESDAY) == 0
