"""Optional packages: the command that installs each, for the error that a missing package causes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidings.model.errors import MissingPackageError

# The extra that brings each package, by the name under which the package is imported.
EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "google": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "zstandard": "connect",
    "prometheus_client": "live",
    "uvicorn": "live",
    "uvloop": "live",
}
# The distribution of packages that only benchmarks and plots use, so no extra brings them.
DISTRIBUTIONS = {
    "duckdb": "duckdb",
    "matplotlib": "matplotlib",
    "pika": "pika",
    "polars": "polars",
    "rule_engine": "rule-engine",
    "sqlglot": "sqlglot",
}
# PySpark's message for a missing package, which contains the distribution's name, not the import name.
_PYSPARK_WORDS = re.compile(r"(\S+) >= \S+ must be installed")
_PYSPARK_NAMES = {"grpcio": "grpc", "grpcio-status": "grpc_status", "googleapis-common-protos": "google"}


def installation(package: str) -> str | None:
    """Return the command that installs an optional package, or None if the package is not optional.

    `package` is the name under which the package is imported.
    """
    if package in EXTRAS:
        return f"pip install 'tidings[{EXTRAS[package]}]'"
    return f"pip install {DISTRIBUTIONS[package]}" if package in DISTRIBUTIONS else None


def missing_package(error: ImportError) -> MissingPackageError | None:
    """Return a `MissingPackageError` for a failed import of an optional package, or None for any other import."""
    if isinstance(error, MissingPackageError):
        return error
    package = (error.name or "").partition(".")[0]
    if not package and (match := _PYSPARK_WORDS.search(str(error))) is not None:
        package = _PYSPARK_NAMES.get(match[1].lower(), match[1].lower())
    command = installation(package)
    if command is None:
        return None
    is_absent = isinstance(error, ModuleNotFoundError) or "it was not found" in str(error)
    state = "is not installed" if is_absent else f"cannot be imported ({error})"  # for example, too old
    return MissingPackageError(f"{package} {state}: {command}")


@contextmanager
def optional_packages() -> Iterator[None]:
    """Convert an `ImportError` for an optional package into a `MissingPackageError`; context manager and decorator."""
    try:
        yield
    except ImportError as error:
        missing = missing_package(error)
        if missing is None or missing is error:
            raise
        raise missing from error
