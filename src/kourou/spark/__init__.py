"""Topics as DataFrames: data sources for Spark, through PySpark's Python Data Source API.

    spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("topics", "orders").load()
    spark.read.format("rocketmq-store").load("/data/rocketmq/store")

The formats register themselves: Spark imports every top-level package named `pyspark_…`, and `pyspark_rocketmq` and
`pyspark_rocketmq_store` lead here. Needs the extra `kourou[spark]`; nothing else in Kourou imports this package.

From the bottom, each module knowing only those before it:

    errors options columns           what users write, and one line for each mistake in it
    selection rows _rows             records -> Arrow batches, plain and compiled
    log_files scanning               commit-log files, cut into splits and read
    wire cluster                     a blocking client: connections, routes, offsets of queues
    positions planning               where to begin and end, and which task reads what; pure
    pulling                          a range of a queue -> Arrow batches
    messages sending                 rows -> batches of messages, acknowledged
    workers                          what a worker process does once
    narrowing                        what filters of a query say about where rows can be
    store_source source sink         readers and writers as Spark wants them; only narrowing, these and the next import
                                     pyspark
    formats                          the formats by name, which Spark finds without importing the rest
"""
