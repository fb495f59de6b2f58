"""The command `tidings filter`: parse a filter, evaluate it on an event, and compare it with another filter."""

from typing import Any

from tidings.cli.options import parse_json_object
from tidings.cli.output import out, print_json
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
