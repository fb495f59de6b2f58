"""Python runs this file where its folder is in PYTHONPATH: optional packages cannot be imported then, as if they were
not installed. Processes that are started from there inherit it."""

import sys
from importlib.machinery import ModuleSpec

PACKAGES = {
    *("pyspark", "py4j", "pandas", "google", "grpc", "grpc_status", "zstandard"),
    *("prometheus_client", "uvicorn", "uvloop"),
    *("duckdb", "matplotlib", "pika", "polars", "rule_engine", "sqlglot"),
}


class Blocker:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Blocker())
