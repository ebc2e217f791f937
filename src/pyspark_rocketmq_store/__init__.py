"""Spark finds `format("rocketmq-store")` here: it imports packages named `pyspark_…` and takes their `DefaultSource`.

What is wrong with this installation must not keep Spark from finding other sources; so nothing here raises.
"""

try:
    from kourou.spark.formats import StoreSource as DefaultSource
except ImportError:  # without the extra kourou[spark], or beside a Spark without Python data sources
    pass
else:
    __all__ = ["DefaultSource"]
