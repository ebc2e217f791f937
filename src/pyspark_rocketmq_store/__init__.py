"""Spark finds `format("rocketmq-store")` here: it imports packages named `pyspark_…` and takes their `DefaultSource`.

An error in this installation must not prevent Spark from finding other sources, so this module raises nothing.
"""

try:
    from kourou.spark.formats import StoreSource as DefaultSource
except ImportError:  # without the extra kourou[spark], or with a Spark without Python data sources
    pass
else:
    __all__ = ["DefaultSource"]
