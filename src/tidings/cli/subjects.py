"""`tidings topics` and `tidings schema`: what can be subscribed to, and what events of a subject look like."""

from typing import Any

from tidings.cli.caller import Caller
from tidings.cli.terminal import out, print_json, table
from tidings.model.schema import Schema
from tidings.model.schematext import schema_of, versions_of


def topics(caller: Caller, *, as_json: bool) -> None:
    with caller.opened(observer=True) as client:
        found = client.topics()
    if as_json:
        print_json(found)
        return
    subjects = table("subject", "version", "attributes")
    for one in found["subjects"]:
        schema = schema_of(one["subject"], one["versions"])
        subjects.add_row(schema.subject, str(schema.version), _attributes(schema))
    offered = table("advertised by", "content", "publishers' context", "subscribers' context", "id")
    for one in found["advertisements"]:
        # An older broker does not say whether all names are offered.
        publishers = "all" if one.get("publisher_context_all") else _names(one["publisher_context"])
        subscribers = _names(one["subscriber_context"])
        offered.add_row(one["publisher"], one["content"] or "everything", publishers, subscribers, one["id"])
    for one in (subjects, offered):
        if one.row_count:
            out.print(one, markup=False)
    if not subjects.row_count and not offered.row_count:
        out.print("nobody has advertised anything, and no subject has a schema", markup=False)


def define(caller: Caller, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
    schema = Schema(subject, attributes)
    with caller.opened() as client:
        _show(client.schema(schema), as_json=as_json)


def extend(caller: Caller, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
    """Appends attributes to the schema that the broker has: a new version."""
    with caller.opened() as client:
        _show(client.schema(client.schema(subject).extend(attributes)), as_json=as_json)


def show(caller: Caller, subject: str, *, as_json: bool) -> None:
    with caller.opened(observer=True) as client:
        _show(client.schema(subject), as_json=as_json)


def _show(schema: Schema, *, as_json: bool) -> None:
    if as_json:
        print_json({"subject": schema.subject, "version": schema.version, "versions": versions_of(schema)})
        return
    shown = table("attribute", "type", "since version")
    for number, added in enumerate(versions_of(schema), 1):
        for name, kind in added.items():
            shown.add_row(name, kind, str(number))
    out.print(shown, markup=False)


def _attributes(schema: Schema) -> str:
    return ", ".join(f"{name} {kind}" for added in versions_of(schema) for name, kind in added.items())


def _names(told: Any) -> str:
    return told if isinstance(told, str) else ", ".join(told)
