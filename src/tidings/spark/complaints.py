"""What goes wrong on executors, said in our words: Spark wraps an error in its own, with stack traces around it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidings.model.errors import TidingsError

_OURS = re.compile(r"^tidings\.[\w.]+Error: (.+)$", re.MULTILINE)


@contextmanager
def plainly() -> Iterator[None]:
    """Raises a `TidingsError` of one line for whatever Spark raises."""
    try:
        yield
    except TidingsError:
        raise
    except Exception as error:
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException):
            raise
        text = str(error)
        said = _OURS.search(text)
        line = said[1] if said else next(iter(text.strip().splitlines()), type(error).__name__)
        raise TidingsError(line if said else f"Spark: {line}") from error
