"""The process that Spark forks its Python workers from, with Tidings loaded before it forks.

Spark runs this module in the place of `pyspark.daemon` where the setting `spark.python.daemon.module` names it. A
worker that is forked from `pyspark.daemon` imports PyArrow, Numba and Tidings and loads the compiled kernels for
itself, which takes more than a second of processor time; a worker that is forked from here has them, and shares their
memory with the other workers.
"""

import gc
import importlib
from contextlib import suppress

from tidings.matching.index import compiling

_MODULES = (
    *("pandas", "pyarrow", "pyspark.worker"),
    *(f"tidings.spark.{name}" for name in ("shard", "worker", "retracer", "explainer")),
)


def load() -> None:
    """Imports what workers need, and loads the kernels.

    A module that cannot be imported is left to the worker, whose error says more.
    """
    for name in _MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    compiling.ready()
    gc.collect()
    gc.freeze()  # a worker that collects garbage does not copy the pages that it shares


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
