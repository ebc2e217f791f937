"""Spark finds `format("rocketmq")` here: it imports packages named `pyspark_…` and takes their `DefaultSource`.

An error in this installation must not prevent Spark from finding other sources, so this module raises nothing.
"""

try:
    import pyspark.sql.streaming.datasource  # noqa: F401 - since Spark 4.2

    from kourou.spark.formats import RocketmqSource as DefaultSource
except ImportError:  # without the extra kourou[spark], or with a Spark that is too old
    pass
else:
    __all__ = ["DefaultSource"]
