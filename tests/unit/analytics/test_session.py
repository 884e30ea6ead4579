"""Spark's settings: S3's by the variables that Amazon's own tools read."""

from flockmq_analytics.session import CREDENTIALS, s3_settings

PREFIX = "spark.hadoop.fs.s3a"


def test_amazons_s3_needs_no_variable() -> None:
    assert s3_settings({}) == {f"{PREFIX}.aws.credentials.provider": CREDENTIALS}
    assert s3_settings({"AWS_REGION": "eu-north-1"})[f"{PREFIX}.endpoint.region"] == "eu-north-1"


def test_another_store_is_found_by_its_endpoint() -> None:
    said = s3_settings({"AWS_ENDPOINT_URL": "https://minio:9000"})
    assert said[f"{PREFIX}.endpoint"] == "https://minio:9000"
    assert said[f"{PREFIX}.path.style.access"] == "true"
    assert said[f"{PREFIX}.endpoint.region"] == "us-east-1"
    both = {"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": "https://b", "AWS_REGION": "here"}
    assert (s3_settings(both)[f"{PREFIX}.endpoint"], s3_settings(both)[f"{PREFIX}.endpoint.region"]) == (
        "https://b",
        "here",
    )
