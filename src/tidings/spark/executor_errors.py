"""Extract the cause from errors that Spark raises for executors, which come wrapped in stack traces and plans."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidings.model.errors import TidingsError

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
