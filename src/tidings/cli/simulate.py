"""`tidings simulate`: runs a scenario in virtual time and sums up what came of it."""

from pathlib import Path

import msgspec
from rich.table import Table

from tidings.cli.overlay_picture import checked_picture, draw
from tidings.cli.terminal import err, out, print_json, progress
from tidings.model.errors import TidingsError
from tidings.simulation.scenario import Outcome, Run, Scenario
from tidings.simulation.scenario.outcome import LinkTraffic, Traffic

_WIDTH = 13  # of the names before what is said of them
_BUSIEST = 5
_SHOWN_VIOLATIONS = 5
_NOTHING = Traffic(messages=0, bytes=0)


def simulate(scenario: Scenario, *, picture: Path | None, as_json: bool) -> None:
    if picture is not None:
        checked_picture(picture)
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


def _run(scenario: Scenario) -> Outcome:
    run, seconds = Run(scenario), scenario.workload.seconds
    with progress() as bar:
        task = bar.add_task("virtual seconds", total=round(seconds))
        return run.finish(lambda at: bar.update(task, completed=int(at)))


# What is said at the end


def _summarise(outcome: Outcome) -> None:
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
    for one in outcome.violations[:_SHOWN_VIOLATIONS]:
        err.print(str(one), markup=False, soft_wrap=True)


def _meanwhile(outcome: Outcome) -> str:
    return (
        f"{outcome.context_changes:,} changes of context, {outcome.moves:,} moves, {outcome.faults:,} faults, "
        f"{outcome.dropped:,} datagrams lost"
    )


def _verdict(outcome: Outcome) -> str:
    if not outcome.is_checked:
        return "no: it would take too long; `check = true` in [workload] does it nevertheless"
    if outcome.violations:
        return f"violations: {len(outcome.violations)}"
    return f"nothing lost, undue, twice or out of order; {outcome.closing:,} events at the end reached all they had to"


def _kinds(outcome: Outcome) -> Table:
    table = _table("messages", "setup", "bytes", "workload", "bytes")
    for kind in sorted({*outcome.setup, *outcome.workload}):
        setup, workload = outcome.setup.get(kind, _NOTHING), outcome.workload.get(kind, _NOTHING)
        table.add_row(kind, f"{setup.messages:,}", _size(setup), f"{workload.messages:,}", _size(workload))
    return table


def _links(outcome: Outcome) -> Table:
    table = _table("busiest links", "messages", "bytes", "events")
    for link in outcome.links[:_BUSIEST]:
        table.add_row(f"{link.one}-{link.other}", f"{link.messages:,}", _size(link), f"{link.publications:,}")
    return table


def _tables(outcome: Outcome) -> Table:
    table = _table("tables", "smallest", "mean", "largest")
    sizes = outcome.tables.values()
    for name in ("advertisements", "subscriptions", "contexts", "from_neighbours"):
        found = [getattr(one, name) for one in sizes]
        mean = f"{sum(found) / len(found):,.1f}"
        table.add_row(name.replace("_", " "), f"{min(found):,}", mean, f"{max(found):,}")
    return table


def _size(traffic: Traffic | LinkTraffic) -> str:
    return "not counted" if traffic.messages and not traffic.bytes else f"{traffic.bytes:,}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _row(name: str, told: str) -> None:
    out.print(f"{name:<{_WIDTH}}{told}", markup=False, soft_wrap=True)
