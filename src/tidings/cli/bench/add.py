"""How subscriptions get into the index and out of it: in bulk from text, and one by one into a full one."""

from tidings.cli.bench import Measurement, steps, timed, workload
from tidings.index import Index
from tidings.language.sql import forget_templates

_ONE_BY_ONE = 5_000


def measure(count: int) -> list[Measurement]:
    """Workload W; the index has `count` subscriptions before more are added, and merges are part of the time."""
    few = min(_ONE_BY_ONE, count)
    with steps(4) as step:
        step("loading the index")
        table = workload.loadable(*workload.subscriptions(count))
        index = Index()
        forget_templates()  # what was measured before may have had the same shapes
        loading = timed(lambda: index.add_many(table))
        step("adding")
        more = [(f"more{i}", text) for i, text in enumerate(workload.texts(*workload.subscriptions(few, seed=2)))]

        def add() -> None:
            for one, text in more:
                index.add(one, text)

        def remove() -> None:
            for one, _ in more:
                index.remove(one)

        adding = timed(add) / few
        step("removing")
        removing = timed(remove) / few
        step("adding again")
        again = timed(add) / few
    return [
        Measurement(f"load {count:,} subscriptions from text", loading, "s", f"{35 * count / 1e6:g} s"),
        Measurement(f"add one to {count:,}, averaged over {few:,}", adding * 1e6, "us", "30 us"),
        Measurement("remove one of them", removing * 1e6, "us"),
        Measurement("add them again, so that no text is of a new shape", again * 1e6, "us", "30 us"),
    ]
