"""The Data Source itself: its schema, and who reads it."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_flockmq.batch_reader import FilteringReader, FlockmqReader
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.options import parse_options
from pyspark_flockmq.stream_reader import FlockmqStreamReader


class FlockmqDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "flockmq"

    def schema(self) -> str:
        return f"{STREAMS[parse_options(self.options).stream].ddl}, malformed STRING"

    def reader(self, schema: StructType) -> FlockmqReader:
        options = parse_options(self.options)
        return FilteringReader(options) if options.takes_filters else FlockmqReader(options)

    def streamReader(self, schema: StructType) -> FlockmqStreamReader:
        return FlockmqStreamReader(parse_options(self.options))
