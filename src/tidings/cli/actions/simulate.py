"""The command `tidings simulate`: run a scenario, or replay a step file, in virtual time, and print the outcome."""

from pathlib import Path

import msgspec
from rich.table import Table

from tidings.cli.output import err, out, print_json, progress
from tidings.cli.topology_picture import check_picture_path, draw
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.simulation.checking.history import History
from tidings.simulation.scenario import Run, Scenario, ScenarioOutcome
from tidings.simulation.scenario.outcome import LinkTraffic, Traffic
from tidings.simulation.step_file import read

_WIDTH = 13  # of the column of names
_BUSIEST = 5
_SHOWN_VIOLATIONS = 5
_NOTHING = Traffic(messages=0, bytes=0)


def simulate(scenario: Scenario, *, picture: Path | None, as_json: bool) -> None:
    """Run a scenario and print its outcome. Raises TidingsError if the run violates the delivery guarantees.

    Args:
        scenario: The scenario.
        picture: The file to draw the overlay and its traffic into; None: no picture.
        as_json: Print JSON.
    """
    if picture is not None:
        check_picture_path(picture)
    outcome = _run(scenario)
    if picture is not None:
        draw(outcome, picture)
    if as_json:
        print_json(msgspec.to_builtins(outcome))
    else:
        _summarise(outcome)
        if picture is not None:
            _row("picture", str(picture))
    if outcome.violations:
        raise TidingsError(f"violations: {len(outcome.violations)}; --seed {outcome.seed} does the same again")


def _run(scenario: Scenario) -> ScenarioOutcome:
    run, seconds = Run(scenario), scenario.workload.seconds
    with progress() as bar:
        task = bar.add_task("virtual seconds", total=round(seconds))
        return run.finish(lambda at: bar.update(task, completed=int(at)))


# Summary of the outcome


def _summarise(outcome: ScenarioOutcome) -> None:
    links = f"{len(outcome.links):,} links" if len(outcome.links) != 1 else "1 link"
    _row("overlay", f"{outcome.brokers:,} brokers, {links}, {outcome.clients:,} clients, {outcome.strategy}")
    _row("seed", f"{outcome.seed}, trace {outcome.trace}")
    _row("time", f"{outcome.seconds:.3f} s, of which {outcome.setup_seconds:.3f} s until tables were complete")
    away = f" ({outcome.away:,} while the publisher's broker was down)" if outcome.away else ""
    _row("published", f"{outcome.published:,} events, {outcome.refused:,} refused{away}")
    for reason, count in outcome.reasons.items():
        _row("", f"{count:,} x {reason}")
    _row("delivered", f"{outcome.delivered:,} notifications")
    _row("meanwhile", _meanwhile(outcome))
    _row("settled", f"within {outcome.settle_seconds:.3f} s, each time")
    _row("checked", _verdict(outcome))
    out.print()
    out.print(_kinds(outcome))
    out.print()
    out.print(_links(outcome))
    out.print()
    out.print(_tables(outcome))
    for violation in outcome.violations[:_SHOWN_VIOLATIONS]:
        err.print(str(violation), markup=False, soft_wrap=True)


def _meanwhile(outcome: ScenarioOutcome) -> str:
    return (
        f"{outcome.context_changes:,} changes of context, {outcome.moves:,} moves, {outcome.faults:,} faults, "
        f"{outcome.dropped:,} datagrams lost"
    )


def _verdict(outcome: ScenarioOutcome) -> str:
    if not outcome.is_checked:
        return "no: it would take too long; `check = true` in [workload] does it nevertheless"
    if outcome.violations:
        return f"violations: {len(outcome.violations)}"
    return f"nothing lost, undue, twice or out of order; {outcome.closing:,} events at the end reached all they had to"


def _kinds(outcome: ScenarioOutcome) -> Table:
    table = _table("messages", "setup", "bytes", "workload", "bytes")
    for kind in sorted({*outcome.setup, *outcome.workload}):
        setup, workload = outcome.setup.get(kind, _NOTHING), outcome.workload.get(kind, _NOTHING)
        table.add_row(kind, f"{setup.messages:,}", _size(setup), f"{workload.messages:,}", _size(workload))
    return table


def _links(outcome: ScenarioOutcome) -> Table:
    table = _table("busiest links", "messages", "bytes", "events")
    for link in outcome.links[:_BUSIEST]:
        table.add_row(f"{link.one}-{link.other}", f"{link.messages:,}", _size(link), f"{link.publications:,}")
    return table


def _tables(outcome: ScenarioOutcome) -> Table:
    table = _table("tables", "smallest", "mean", "largest")
    sizes = outcome.tables.values()
    for name in ("advertisements", "subscriptions", "contexts", "from_neighbours"):
        counts = [getattr(size, name) for size in sizes]
        mean = f"{sum(counts) / len(counts):,.1f}"
        table.add_row(name.replace("_", " "), f"{min(counts):,}", mean, f"{max(counts):,}")
    return table


def _size(traffic: Traffic | LinkTraffic) -> str:
    return "not counted" if traffic.messages and not traffic.bytes else f"{traffic.bytes:,}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _row(name: str, value: str) -> None:
    out.print(f"{name:<{_WIDTH}}{value}", markup=False, soft_wrap=True)


def replay(path: Path, *, seed: int | None, strategy: str | None, as_json: bool) -> None:
    """Replay a step file, and print the violations of the delivery guarantees. Raises TidingsError if there are any.

    Args:
        path: The step file.
        seed: A seed in place of the file's.
        strategy: A routing strategy in place of the file's.
        as_json: Print JSON.
    """
    history = _history(path, seed, strategy)
    violations = history.violations()
    if as_json:
        print_json({"strategy": history.strategy, "seed": history.seed, "violations": msgspec.to_builtins(violations)})
    elif not violations:
        out.print(f"{path}: nothing goes wrong (strategy {history.strategy}, seed {history.seed})", soft_wrap=True)
    else:
        for violation in violations[:_SHOWN_VIOLATIONS]:
            err.print(str(violation), markup=False, soft_wrap=True)
    if violations:
        raise TidingsError(f"{path}: violations: {len(violations)} (strategy {history.strategy}, seed {history.seed})")


def _history(path: Path, seed: int | None, strategy: str | None) -> History:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"{path}: is not UTF-8 text") from None
    history = read(text, str(path)).history
    return msgspec.structs.replace(
        history,
        seed=history.seed if seed is None else seed,
        strategy=history.strategy if strategy is None else strategy,
    )
