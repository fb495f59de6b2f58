"""The Java that Spark runs on: is it there, is it new enough, and a quiet start of it."""

import contextlib
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.model.errors import TidingsError

if TYPE_CHECKING:
    from pyspark import SparkConf

LEAST_JAVA = 17
_INSTALL = (
    "install one ('apt-get install openjdk-17-jre-headless', 'brew install openjdk@17') "
    "and put it on the PATH or into JAVA_HOME"
)
# Written by Java itself because Spark asks for this module; no setting of either silences it.
_NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"


def check_java() -> None:
    """Raises a `TidingsError` unless Spark will find a Java that is new enough: in JAVA_HOME, or else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home) / "bin" / "java" if home else "java")
    if java is None:
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none on the PATH"
        raise TidingsError(f"Spark needs Java {LEAST_JAVA} or newer and {where}: {_INSTALL}")
    try:
        # S603: what is run is the very program that Spark is about to run.
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
        version = java_version(answer.stderr + answer.stdout)
    except (OSError, subprocess.TimeoutExpired):
        version = None
    if version is None:
        raise TidingsError(f"Spark needs Java {LEAST_JAVA} or newer and {java} does not run: {_INSTALL}")
    if version < LEAST_JAVA:
        raise TidingsError(f"Spark needs Java {LEAST_JAVA} or newer and {java} is Java {version}: {_INSTALL}")


def java_version(told: str) -> int | None:
    """The major version in what `java -version` tells: 17 of `"17.0.15"`, 8 of `"1.8.0_292"`."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def launch_java(conf: "SparkConf") -> Any:
    """PySpark's gateway to a new Java process that writes to our standard error all but the line that says nothing."""
    from pyspark.java_gateway import launch_gateway

    ours, theirs = os.pipe()
    try:
        gateway = launch_gateway(conf, {"stderr": theirs})
    except Exception:
        os.close(theirs)
        _pass_on(ours)  # Java has ended, and so does what it had to say
        raise
    os.close(theirs)
    # Only now: PySpark's way of starting a process is not for programs that run threads.
    threading.Thread(target=_pass_on, args=(ours,), name="tidings-spark-stderr", daemon=True).start()
    return gateway


def _pass_on(source: int) -> None:
    with open(source, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                # Not `sys.stderr`, whose lock a thread must not hold when Python ends.
                with contextlib.suppress(OSError):
                    os.write(2, line)
