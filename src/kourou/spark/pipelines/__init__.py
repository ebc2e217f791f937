"""Jobs on top of the data sources: each a function that returns a run report, and a verb of `kourou pipeline`.

    from kourou.spark.pipelines.archive import archive
    report = archive("orders", "lake", namesrv="127.0.0.1:9876")
    print(report.text())

The modules from the bottom up; each imports only those above it in this list:

    report charts page        the result of a run: as text, as JSON, as a page with charts; pure
    progress                  one line per batch, for people or programs
    running                   a run: session, batches, clean stops, one-line errors
    choice                    which messages a job works on; spans of time
    tasks                     functions that run in Spark's tasks

    object_stores             s3:// for Arrow and for Spark; pure
    intervals folders ledger  which messages are done, recorded in files that appear atomically; no Spark
    parquet_files             rows -> the files of an archive; no Spark
    lake_files delta lake     when these files become visible, as plain Parquet or in Delta's format; no Spark
    archive archive_store     topics and store files -> the lake, each message once
    merging compact           small files of the lake -> few
    sending                   rows -> a topic, in tasks, counted
    replay dlq                the lake, or dead letters -> topics
    streams transform dedup   topic -> topic, by queries with a checkpoint
    stats trace               traffic, lag and latency; read-only
"""
