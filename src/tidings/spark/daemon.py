"""The process that Spark forks Python workers from, with Tidings imported before the first fork.

Spark runs this module instead of `pyspark.daemon` if the setting `spark.python.daemon.module` names it. A worker that
is forked from `pyspark.daemon` imports PyArrow, Numba and Tidings and loads the compiled kernels itself, which takes
more than a second of processor time. A worker that is forked from this process inherits them and shares their memory
with the other workers.
"""

import gc
import importlib
from contextlib import suppress

from tidings.matching.index.kernels import jit

MODULES = (
    *("pandas", "pyarrow", "pyspark.worker"),
    *("tidings.spark.shards.shard_worker", "tidings.spark.shards.stateless_worker"),
    *("tidings.spark.replay.retrace_worker", "tidings.spark.replay.explain_worker"),
)


def load() -> None:
    """Import the modules that workers need, and load the compiled kernels.

    A module that cannot be imported is skipped: the worker imports it again and reports the error.
    """
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    jit.ready()
    gc.collect()
    gc.freeze()  # so that garbage collection in a worker does not copy shared pages


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
