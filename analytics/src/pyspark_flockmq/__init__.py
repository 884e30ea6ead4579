"""A PySpark 4 Data Source that reads FlockMQ's event streams from Redis.

Once the package is installed, Spark finds it by its name (`pyspark_…`) and `DefaultSource`; nothing is registered:

    spark.read.format("flockmq").option("url", "redis://redis:6379/0").option("stream", "connections").load()
    spark.readStream.format("flockmq")…    the like, as the stream grows

`options.py` lists the options, `events.py` the columns of each stream.
"""

from pyspark_flockmq.source import FlockmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
