"""Spark finds `format("rocketmq")` here: it imports packages named `pyspark_…` and takes their `DefaultSource`.

What is wrong with this installation must not keep Spark from finding other sources; so nothing here raises.
"""

try:
    import pyspark.sql.streaming.datasource  # noqa: F401 - since Spark 4.2

    from kourou.spark.formats import RocketmqSource as DefaultSource
except ImportError:  # without the extra kourou[spark], or beside a Spark that is too old
    pass
else:
    __all__ = ["DefaultSource"]
