"""The nightly job: FlockMQ's event streams to date-partitioned Parquet, and one small report."""
