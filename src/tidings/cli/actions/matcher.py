"""The commands `tidings filter` and `tidings warm`: evaluate and compare filters; compile the matching kernels."""

import time
from typing import Any

from tidings.cli.options import parse_json_object
from tidings.cli.output import out, print_json, progress
from tidings.filters import Filter
from tidings.matching.reference import Scope, truth
from tidings.model.event import checked_subject
from tidings.model.values import Attributes

_TRUTHS = {True: "true", False: "false", None: "unknown"}


def show(
    text: str,
    format: str,  # noqa: A002 - the option's name
    *,
    event: str | None,
    subject: str | None,
    payload: str | None,
    against: str | None,
    as_json: bool,
) -> None:
    """Print the canonical form of a filter and its attribute names; on request, evaluate and compare it.

    Args:
        text: The filter.
        format: The notation of `text` and `against`: sql, topic, tags, regex, xpath or padres.
        event: Attributes as a JSON object to evaluate the filter on.
        subject: The event's subject.
        payload: The event's payload, as text.
        against: Another filter, to print whether one covers or overlaps the other.
        as_json: Print JSON.
    """
    parsed = Filter.parse(text, format)
    result: dict[str, Any] = {"filter": str(parsed), "attributes": sorted(parsed.names)}
    if event is not None or subject is not None or payload is not None:
        outcome = truth(parsed.expression, _scope(event, subject, payload))
        result |= {"truth": _TRUTHS[outcome], "matches": outcome is True}
    if against is not None:
        result["relation"] = parsed.relation(Filter.parse(against, format)).value
    if as_json:
        print_json(result)
        return
    for name, value in result.items():
        printed = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        out.print(
            f"{name:<11}", ", ".join(printed) if isinstance(printed, list) else printed, markup=False, soft_wrap=True
        )


def _scope(event: str | None, subject: str | None, payload: str | None) -> Scope:
    """Return the event, from the command line options, that the filter is evaluated on."""
    attributes = parse_json_object(event, "--event") if event is not None else {}
    encoded = payload.encode(errors="surrogateescape") if payload is not None else None
    return Scope(Attributes.of(attributes), subject=checked_subject(subject), payload=encoded)


def warm(as_json: bool) -> None:
    """Compile the matching kernels, or load them from the cache, and print how many and how long it took."""
    from tidings.matching.index.kernels import jit  # loads numba, which `tidings filter` does not need

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
