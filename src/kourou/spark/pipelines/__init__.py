"""Jobs on top of the data sources: each a function that returns a run report, and a verb of `kourou pipeline`.

    from kourou.spark.pipelines.archive import archive
    report = archive("orders", "lake", namesrv="127.0.0.1:9876")
    print(report.text())

From the bottom, each module knowing only those before it:

    report charts page        what a run found out: as text, as JSON, as a page with charts; pure
    progress                  one line per batch, for people or programs
    running                   a run: session, batches, clean stops, errors in one line
    choosing                  which rows are meant; spans of time
    tasks                     functions that run in Spark's tasks

    object_stores             s3:// for Arrow and for Spark; pure
    intervals folders ledger  which messages are done, in files that are there or not, never half; no Spark
    parquet_files             rows -> the files of an archive; no Spark
    showing delta lake        when these files become visible, as plain Parquet or in Delta's format; no Spark
    archive archive_store     topics and store files -> the lake, each message once
    merging compact           small files of the lake -> few
    sending                   rows -> a topic, in tasks, counted
    replay dlq                the lake, or dead letters -> topics
    streams transform dedup   topic -> topic, by queries with a checkpoint
    stats trace               traffic, lag and latency; they read only
"""
