"""Measure adding subscriptions to the index and removing them: in bulk from text, and one by one into a full index."""

from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, steps, time_once
from tidings.language.sql import forget_templates
from tidings.text_index import Index

_ONE_BY_ONE = 5_000


def measure(count: int) -> list[Measurement]:
    """Measure on workload W, with `count` subscriptions in the index before more are added. Times include merges."""
    few = min(_ONE_BY_ONE, count)
    with steps(4) as step:
        step("loading the index")
        table = workload.loadable(*workload.subscriptions(count))
        index = Index()
        forget_templates()  # an earlier benchmark may have parsed texts of the same shapes
        loading = time_once(lambda: index.add_many(table))
        step("adding")
        more = [(f"more{i}", text) for i, text in enumerate(workload.texts(*workload.subscriptions(few, seed=2)))]

        def add() -> None:
            for id_, text in more:
                index.add(id_, text)

        def remove() -> None:
            for id_, _ in more:
                index.remove(id_)

        adding = time_once(add) / few
        step("removing")
        removing = time_once(remove) / few
        step("adding again")
        again = time_once(add) / few
    return [
        Measurement(f"load {count:,} subscriptions from text", loading, "s", f"{35 * count / 1e6:g} s"),
        Measurement(f"add one to {count:,}, averaged over {few:,}", adding * 1e6, "us", "30 us"),
        Measurement("remove one of them", removing * 1e6, "us"),
        Measurement("add them again, so that no text is of a new shape", again * 1e6, "us", "30 us"),
    ]
