"""The command `tidings warm`: compile the matching kernels into the cache, so that no program waits for it later."""

import time

from tidings.cli.output import out, print_json, progress
from tidings.matching.index.kernels import jit


def warm(as_json: bool) -> None:
    """Compile the matching kernels, or load them from the cache, and print how many and how long it took."""
    begin = time.perf_counter()
    with progress() as bar:
        task = bar.add_task("", total=jit.count())
        numbers = iter(range(jit.count()))
        outcome = jit.ready(lambda name: bar.update(task, completed=next(numbers), description=f"compiling {name}"))
    seconds = round(time.perf_counter() - begin, 1)
    if as_json:
        print_json({**outcome._asdict(), "seconds": seconds})
        return
    if outcome.compiled:
        summary = f"{outcome.compiled} of {outcome.kernels} kernels compiled in {seconds} s"
    else:
        summary = f"all {outcome.kernels} kernels were compiled already; loaded in {seconds} s"
    cache_note = (
        f"kept in {outcome.cache}" if outcome.cache else "not kept: set NUMBA_CACHE_DIR to a folder that can be written"
    )
    out.print(f"{summary}\n{cache_note}", markup=False, soft_wrap=True)
