"""The output in S3: one writer, whole files, and no change of what somebody else has changed."""

import threading
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from flockmq_analytics import s3_storage
from flockmq_analytics.s3_storage import S3Storage
from flockmq_analytics.storage import LOCK, STAGING, OutputError

pytestmark = pytest.mark.s3


@pytest.fixture
def one(spark: SparkSession, bucket: str) -> S3Storage:
    return S3Storage(spark, f"{bucket}/a/prefix/")


@pytest.fixture
def other(spark: SparkSession, one: S3Storage) -> S3Storage:
    """Another run's, of the same output."""
    return S3Storage(spark, str(one))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_storage, "LOCK_TRY_S", 0.05)


def names(storage: S3Storage, folder: str) -> Iterator[str]:
    return (found.name for found in storage.found(folder))


def test_a_second_run_is_refused_and_staging_is_gone_at_the_end(one: S3Storage, other: S3Storage) -> None:
    with one.locked() as staging:
        one.write(f"{staging}/file", b"x")
        with pytest.raises(OutputError, match="another run is writing"), other.locked():
            pass
        assert list(names(other, STAGING)) == [f"{staging}/file"]
    assert list(names(other, "")) == []
    with other.locked() as staging:
        assert list(names(other, staging)) == []


def test_the_lock_of_a_run_that_died_is_taken_over_and_it_changes_nothing_more(
    one: S3Storage, other: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one stalls, and comes back: it must not undo what the second one did."""
    with one.locked() as staging:
        one.replace(staging, "manifest.json", b"first")
        monkeypatch.setattr(s3_storage, "LEASE_S", 0.2)
        with other.locked(wait_s=30) as later:
            assert other.read("manifest.json") == b"first"
            other.replace(later, "manifest.json", b"second")
            with pytest.raises(OutputError, match="another run has changed"):
                one.replace(staging, "manifest.json", b"third")
            one._lost.set()  # as its renewal finds
    assert other.read("manifest.json") == b"second"


def test_a_run_that_is_alive_keeps_its_lock(one: S3Storage, other: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_storage, "RENEW_S", 0.05)
    renewed = threading.Event()
    put = S3Storage._put

    def counting(storage: S3Storage, name: str, content: bytes, version: str) -> str:
        made = put(storage, name, content, version)
        if content.endswith(b" 3"):
            renewed.set()
        return made

    monkeypatch.setattr(S3Storage, "_put", counting)
    with one.locked():
        assert renewed.wait(60)
        assert not one._lost.is_set()
        with pytest.raises(OutputError, match="another run is writing"), other.locked():
            pass
    assert list(names(other, LOCK)) == []


def test_a_put_whose_answer_was_lost_counts_as_done(one: S3Storage) -> None:
    version = one._put("document", b"content", "")
    assert version
    assert one._put("document", b"content", "") == version
    assert one._put("document", b"other", "") == ""
    assert one._put("document", b"other", "0123") == ""
    assert one._put("document", b"other", version) not in ("", version)


def test_a_store_that_ignores_conditions_is_refused(one: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    put = S3Storage._put

    def careless(storage: S3Storage, name: str, content: bytes, version: str) -> str:
        storage.remove([name])
        return put(storage, name, content, "")

    monkeypatch.setattr(S3Storage, "_put", careless)
    with pytest.raises(OutputError, match="ignores If-None-Match"), one.locked():
        pass


def test_files_and_folders_get_their_names_in_place_of_others(one: S3Storage) -> None:
    with one.locked() as staging:
        for content in (b"old", b"new"):
            one.write(f"{staging}/part", content)
            one.publish(f"{staging}/part", "lag/date=2026-11-20/file")
            one.write(f"{staging}/report/{content.decode()}", content)
            one.write(f"{staging}/report/_SUCCESS", b"")
            one.publish_folder(f"{staging}/report", "reports/date=2026-11-20", "_SUCCESS")
    assert list(names(one, "")) == [
        "lag/date=2026-11-20/file",
        "reports/date=2026-11-20/_SUCCESS",
        "reports/date=2026-11-20/new",
    ]
    assert one.read("lag/date=2026-11-20/file") == b"new"
    with pytest.raises(FileNotFoundError):
        one.read("lag/date=2026-11-20/part")


def test_parts_of_a_file_are_read(one: S3Storage) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(1000))}), sink)
    one.write("file.parquet", sink.getvalue().to_pybytes())
    with one.open("file.parquet") as source:
        assert pq.read_metadata(source).num_rows == 1000
        assert source.seek(-4, 2) > 0
        assert source.read() == b"PAR1"


def test_a_bucket_that_is_not_there_is_told(spark: SparkSession, bucket: str) -> None:
    with (
        pytest.raises(OutputError, match=f"{bucket}-no can't be used: .*oes not exist"),
        S3Storage(spark, f"{bucket}-no").locked(),
    ):
        pass
