"""`tidings filter`: one filter, looked at from all sides."""

from typing import Any

from tidings.cli.terminal import out, print_json
from tidings.cli.values import json_object
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
    parsed = Filter.parse(text, format)
    found: dict[str, Any] = {"filter": str(parsed), "attributes": sorted(parsed.names)}
    if event is not None or subject is not None or payload is not None:
        outcome = truth(parsed.expression, _scope(event, subject, payload))
        found |= {"truth": _TRUTHS[outcome], "matches": outcome is True}
    if against is not None:
        found["relation"] = parsed.relation(Filter.parse(against, format)).value
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        out.print(f"{name:<11}", ", ".join(shown) if isinstance(shown, list) else shown, markup=False, soft_wrap=True)


def _scope(event: str | None, subject: str | None, payload: str | None) -> Scope:
    attributes = json_object(event, "--event") if event is not None else {}
    encoded = payload.encode(errors="surrogateescape") if payload is not None else None
    return Scope(Attributes.of(attributes), subject=checked_subject(subject), payload=encoded)
