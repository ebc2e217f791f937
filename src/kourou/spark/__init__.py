"""Topics as DataFrames: data sources for Spark, through PySpark's Python Data Source API.

    spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("topics", "orders").load()
    spark.read.format("rocketmq-store").load("/data/rocketmq/store")

The formats register themselves: Spark imports every top-level package named `pyspark_…`, and `pyspark_rocketmq` and
`pyspark_rocketmq_store` import this package. It needs the extra `kourou[spark]`; of Kourou, only the command line
imports it, and only when a pipeline runs.

The modules from the bottom up; each imports only those above it in this list:

    errors options columns           options and columns, and a one-line error for each mistake in them
    selection rows _rows             records -> Arrow batches, plain and compiled
    log_files split_reader           commit-log files, cut into splits and read
    wire cluster                     a blocking client: connections, routes, queue offsets
    positions planning               where reading starts and ends, and which task reads what; pure
    pulling                          a range of a queue -> Arrow batches
    messages sending                 rows -> batches of messages, sent and acknowledged
    workers                          one-time setup of a Python worker process
    filter_pushdown                  which queues, offsets and times the filters of a query allow
    store_source source sink         the readers and writers of Spark's API; only filter_pushdown, these and formats
                                     import pyspark
    formats                          the formats by name; Spark finds them without importing the rest
"""
