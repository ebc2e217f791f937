"""Spark finds `format("rocketmq")` here: it imports packages named `pyspark_…` and takes their `DefaultSource`.

What is wrong with this installation must not keep Spark from finding other sources; so nothing here raises.
"""

try:
    from kourou.spark.source import RocketmqSource as DefaultSource
except ImportError:  # without the extra kourou[spark], or beside a Spark that is too old
    pass
else:
    __all__ = ["DefaultSource"]
