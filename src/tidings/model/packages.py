"""Optional packages: which command installs each, for the error that a program gets where one is missing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidings.model.errors import MissingPackageError

# By the name under which a package is imported.
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
# Only benchmarks and pictures use these, so no extra brings them.
DISTRIBUTIONS = {
    "duckdb": "duckdb",
    "matplotlib": "matplotlib",
    "pika": "pika",
    "polars": "polars",
    "rule_engine": "rule-engine",
    "sqlglot": "sqlglot",
}
# The words in which PySpark says that it lacks a package, with the name by which pip knows it.
_PYSPARK_WORDS = re.compile(r"(\S+) >= \S+ must be installed")
_PYSPARK_NAMES = {"grpcio": "grpc", "grpcio-status": "grpc_status", "googleapis-common-protos": "google"}


def installation(package: str) -> str | None:
    """The command that installs a package, by the name under which it is imported; None if it is not optional."""
    if package in EXTRAS:
        return f"pip install 'tidings[{EXTRAS[package]}]'"
    return f"pip install {DISTRIBUTIONS[package]}" if package in DISTRIBUTIONS else None


def missing_package(error: ImportError) -> MissingPackageError | None:
    """What to say of an import that has failed; None if that is no matter of an optional package."""
    if isinstance(error, MissingPackageError):
        return error
    package = (error.name or "").partition(".")[0]
    if not package and (said := _PYSPARK_WORDS.search(str(error))) is not None:
        package = _PYSPARK_NAMES.get(said[1].lower(), said[1].lower())
    command = installation(package)
    if command is None:
        return None
    is_absent = isinstance(error, ModuleNotFoundError) or "it was not found" in str(error)
    state = "is not installed" if is_absent else f"cannot be imported ({error})"  # such as one that is too old
    return MissingPackageError(f"{package} {state}: {command}")


@contextmanager
def optional_packages() -> Iterator[None]:
    """Raise a `MissingPackageError` for an optional package that cannot be imported; also a decorator."""
    try:
        yield
    except ImportError as error:
        missing = missing_package(error)
        if missing is None or missing is error:
            raise
        raise missing from error
