"""A Spark session with settings that suit Tidings, started without noise."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.model.packages import optional_packages
from tidings.spark.java import check_java, launch_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL_DEFAULTS = {  # nothing of a local session is reachable from elsewhere
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "tidings.spark.daemon",  # workers start quickly; Tidings is installed here
}


@optional_packages()
def session(name: str = "tidings", master: str | None = None, **settings: Any) -> "SparkSession":
    """The active Spark session, or a new one.

    Without a `master` it is the one that `spark-submit` or Spark's own configuration names, or else all cores of this
    machine. `settings` are Spark's, as in `session(**{"spark.ui.enabled": True})`, and win over those chosen here. A
    session that is active already is used as it is; of `settings` it takes those that may change while it runs.

    Raises a `TidingsError` that says what to install where PySpark (a `MissingPackageError`) or Java 17 is missing.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given = {key: _written(value) for key, value in settings.items()}
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in given.items():
            if active.conf.isModifiable(key):
                active.conf.set(key, value)
        register(active)
        return active
    conf = SparkConf().setAppName(name).setAll(_settings(master, given).items())
    if master is not None:
        conf.setMaster(master)
    _say_errors_once()
    _start(SparkContext, conf)
    started = SparkSession.builder.getOrCreate()
    _suit_local(started)
    register(started)
    return started


def is_running() -> bool:
    """Whether there is a session already, which whoever made it will stop."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


@optional_packages()
def register(spark: "SparkSession") -> None:
    """Makes `format("tidings")` known to a session, also to one of Spark Connect; `session` has done it for its own."""
    from tidings.spark.source import JournalSource

    spark.dataSource.register(JournalSource)


def _settings(master: str | None, given: dict[str, str]) -> dict[str, str]:
    local = {**_LOCAL_DEFAULTS, "spark.driver.memory": _memory()} if _is_local(master) else {}
    chosen = {**_DEFAULTS, **local, **given}
    options = chosen.get(_JAVA_OPTIONS, "")
    if "configurationFile" not in options:  # the user's own logging stays
        chosen[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {options}".strip()
    return chosen


def _memory() -> str:
    """A quarter of this machine's: in a local session the driver does all the work, and Spark would give it 1 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{min(8192, max(1024, total // 4))}m"


def _start(context: Any, conf: "SparkConf") -> None:
    """Makes the context; Java is started for the first one, unless `spark-submit` did that."""
    if _is_local(conf.get("spark.master", None)):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run the Python that runs this
    if context._gateway is None and not _is_submitted():
        check_java()
        context(conf=conf, gateway=launch_java(conf))
    else:
        context.getOrCreate(conf)


def _suit_local(started: "SparkSession") -> None:
    """Sets as many shuffle partitions as there are cores in a local session, instead of Spark's 200."""
    context = started.sparkContext
    if context.master.startswith("local") and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        started.conf.set(_SHUFFLE_PARTITIONS, str(context.defaultParallelism))


def _say_errors_once() -> None:
    """PySpark logs every error of a query, with Java's stack trace, and then raises it; raising is enough."""
    from pyspark.logger import PySparkLogger

    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)


def _is_local(master: str | None) -> bool:
    return master.startswith("local") if master is not None else not _is_submitted()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
