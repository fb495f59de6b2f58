"""`tidings warm`: compiles what is compiled only once, so that nobody waits for it later."""

import time

from tidings.cli.terminal import out, print_json, progress
from tidings.matching.index import compiling


def warm(as_json: bool) -> None:
    began = time.perf_counter()
    with progress() as bar:
        task = bar.add_task("", total=compiling.count())
        begun = iter(range(compiling.count()))
        outcome = compiling.ready(lambda name: bar.update(task, completed=next(begun), description=f"compiling {name}"))
    seconds = round(time.perf_counter() - began, 1)
    if as_json:
        print_json({**outcome._asdict(), "seconds": seconds})
        return
    if outcome.compiled:
        told = f"{outcome.compiled} of {outcome.kernels} kernels compiled in {seconds} s"
    else:
        told = f"all {outcome.kernels} kernels were compiled already; loaded in {seconds} s"
    kept = (
        f"kept in {outcome.cache}" if outcome.cache else "not kept: set NUMBA_CACHE_DIR to a folder that can be written"
    )
    out.print(f"{told}\n{kept}", markup=False, soft_wrap=True)
