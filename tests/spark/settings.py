"""Settings for Spark sessions of tests, which are small and end soon."""

# Java compiles quickly rather than well. It keeps little room then for what it has compiled, and when that is full, it
# interprets everything else.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
    "spark.buffer.pageSize": "1m",  # Spark takes 64 MB for every sort and aggregation of a task, however small
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}
# For the session that tests share. The usual class starts a process for each file of a checkpoint; tests that kill a
# pipeline run with the usual one, as users do.
CHECKPOINT_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
TOML = "\n".join(f"{name} = {value!r}" for name, value in SETTINGS.items())
