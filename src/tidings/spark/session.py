"""Start a Spark session with settings that suit Tidings, and check that Java is installed.

Errors of executors come wrapped in stack traces and plans: `reason_of` extracts their cause.
"""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.model.errors import TidingsError
from tidings.model.packages import optional_packages

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
_LOCAL_DEFAULTS = {  # the driver of a local session listens on loopback only
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "tidings.spark.daemon",  # forks workers with Tidings loaded
}


@optional_packages()
def session(name: str = "tidings", master: str | None = None, **settings: Any) -> "SparkSession":
    """Return the active Spark session, or start one with settings that suit Tidings.

    An active session is returned as it is, except that it takes those `settings` that Spark can change at run time. In
    both cases the data source `tidings` is registered with the session.

    Args:
        name: The application's name.
        master: Spark's master URL. None: the master that `spark-submit` or Spark's configuration names, else all cores
            of this machine.
        settings: Spark's settings, as in `session(**{"spark.ui.enabled": True})`. They override the defaults of
            Tidings.

    Raises:
        MissingPackageError: PySpark is not installed; the message says what to install.
        TidingsError: Java is missing or older than 17; the message says what to install.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    requested = {key: _setting_text(value) for key, value in settings.items()}
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in requested.items():
            if active.conf.isModifiable(key):
                active.conf.set(key, value)
        register(active)
        return active
    conf = SparkConf().setAppName(name).setAll(_settings(master, requested).items())
    if master is not None:
        conf.setMaster(master)
    _silence_error_logging()
    _start(SparkContext, conf)
    started = SparkSession.builder.getOrCreate()
    _configure_local(started)
    register(started)
    return started


def is_running() -> bool:
    """Return whether a Spark session is active; the code that started it is responsible for stopping it."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


@optional_packages()
def register(spark: "SparkSession") -> None:
    """Register `format("tidings")` with a session, which may be a Spark Connect session. `session` does this itself."""
    from tidings.spark.source import JournalSource

    spark.dataSource.register(JournalSource)


def _settings(master: str | None, requested: dict[str, str]) -> dict[str, str]:
    local_defaults = {**_LOCAL_DEFAULTS, "spark.driver.memory": _memory()} if _is_local(master) else {}
    chosen = {**_DEFAULTS, **local_defaults, **requested}
    options = chosen.get(_JAVA_OPTIONS, "")
    if "configurationFile" not in options:  # else the user configured logging
        chosen[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {options}".strip()
    return chosen


def _memory() -> str:
    """Return the driver's memory for a local session: a quarter of the machine's, from 1 to 8 GiB.

    In a local session the driver does all the work, and Spark's default is 1 GiB.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{min(8192, max(1024, total // 4))}m"


def _start(context: Any, conf: "SparkConf") -> None:
    """Create the Spark context. Start Java for the first one, unless `spark-submit` started it."""
    if _is_local(conf.get("spark.master", None)):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers use this Python
    if context._gateway is None and not _is_submitted():
        check_java()
        context(conf=conf, gateway=launch_java(conf))
    else:
        context.getOrCreate(conf)


def _configure_local(started: "SparkSession") -> None:
    """Set as many shuffle partitions as cores in a local session, instead of Spark's 200."""
    context = started.sparkContext
    if context.master.startswith("local") and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        started.conf.set(_SHUFFLE_PARTITIONS, str(context.defaultParallelism))


def _silence_error_logging() -> None:
    """Silence PySpark's logging of query errors, since PySpark raises them too."""
    from pyspark.logger import PySparkLogger

    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)


def _is_local(master: str | None) -> bool:
    return master.startswith("local") if master is not None else not _is_submitted()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _setting_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


MIN_JAVA_VERSION = 17
_INSTALL = (
    "install one ('apt-get install openjdk-17-jre-headless', 'brew install openjdk@17') "
    "and put it on the PATH or into JAVA_HOME"
)
# Java prints this line because Spark enables the module; neither has a setting that silences it.
_NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"


def check_java() -> None:
    """Check that Spark will find Java 17 or newer: in JAVA_HOME if it is set, else on the PATH.

    Raises:
        TidingsError: Java is missing, does not run, or is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home) / "bin" / "java" if home else "java")
    if java is None:
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none on the PATH"
        raise TidingsError(f"Spark needs Java {MIN_JAVA_VERSION} or newer and {where}: {_INSTALL}")
    try:
        # S603: Spark is about to run the same program.
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
        version = java_version(answer.stderr + answer.stdout)
    except (OSError, subprocess.TimeoutExpired):
        version = None
    if version is None:
        raise TidingsError(f"Spark needs Java {MIN_JAVA_VERSION} or newer and {java} does not run: {_INSTALL}")
    if version < MIN_JAVA_VERSION:
        raise TidingsError(f"Spark needs Java {MIN_JAVA_VERSION} or newer and {java} is Java {version}: {_INSTALL}")


def java_version(output: str) -> int | None:
    """Return the major version in the output of `java -version` (17 of `"17.0.15"`, 8 of `"1.8.0_292"`), or None."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def launch_java(conf: "SparkConf") -> Any:
    """Start a Java process and return PySpark's gateway to it.

    Java's standard error is copied to this process's standard error, without Java's warning about incubator modules.
    """
    from pyspark.java_gateway import launch_gateway

    read_end, write_end = os.pipe()
    try:
        gateway = launch_gateway(conf, {"stderr": write_end})
    except Exception:
        os.close(write_end)
        _copy_stderr(read_end)  # Java has exited: copy its remaining output
        raise
    os.close(write_end)
    # The thread starts after the launch: PySpark's `preexec_fn` is not safe in a process with other threads.
    threading.Thread(target=_copy_stderr, args=(read_end,), name="tidings-spark-stderr", daemon=True).start()
    return gateway


def _copy_stderr(source: int) -> None:
    """Copy the lines of a pipe to standard error, without Java's warning about incubator modules."""
    with open(source, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                # Not `sys.stderr`: a daemon thread that holds its lock at exit makes Python abort.
                with contextlib.suppress(OSError):
                    os.write(2, line)


_OURS = re.compile(r"^tidings\.[\w.]+Error: (.+)$", re.MULTILINE)


@contextmanager
def unwrapped_spark_errors() -> Iterator[None]:
    """Turn any PySpark exception raised in the block into a `TidingsError` of one line; other exceptions pass."""
    try:
        yield
    except TidingsError:
        raise
    except Exception as error:
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException):
            raise
        text = str(error)
        match = _OURS.search(text)
        line = match[1] if match else next(iter(text.strip().splitlines()), type(error).__name__)
        raise TidingsError(line if match else f"Spark: {line}") from error


_OWN = re.compile(r"^tidings\.model\.errors\.\w+: (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:Error|Exception): .*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?!py4j)[\w.$]+: (?!Traceback)(.*)$", re.MULTILINE)
_SPARK = re.compile(r"\[(?!STREAM_FAILED|FOREACH_BATCH|FAILED_READ_FILE)[A-Z][A-Z0-9_.]+\] ([^\n]+)")
_THROWN = re.compile(r"^: [\w.$]+: (.*)$", re.MULTILINE)  # an exception of Java without a cause
_NAMED = re.compile(r"^(?!py4j)[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)
_FILE = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] Encountered error while reading file (\S+?)\.\s")
_CODE = re.compile(r"\s*SQLSTATE: \w+")
_PLAN = "\n=== Streaming Query ==="


def reason_of(error: BaseException) -> str:
    """Return the cause of a Spark error in one line, without stack traces, plans and SQLSTATE codes."""
    text = str(error).split(_PLAN)[0].strip()
    reasons = [
        matches[-1] for pattern in (_OWN, _PYTHON, _JAVA, _SPARK, _THROWN, _NAMED) if (matches := pattern.findall(text))
    ]
    reason = _CODE.sub("", reasons[0] if reasons else (text.splitlines() or [type(error).__name__])[0]).strip()
    file = _FILE.findall(text)
    return f"{file[-1]}: {reason}" if file else reason
