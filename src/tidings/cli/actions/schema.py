"""The commands `tidings topics` and `tidings schema`: list subjects and advertisements; define, extend and show
schemas."""

from typing import Any

from tidings.cli.connection import BrokerConnection
from tidings.cli.output import out, print_json, table
from tidings.model.schema import Schema, schema_of, versions_of


def topics(caller: BrokerConnection, *, as_json: bool) -> None:
    """Print the subjects with their schemas, and the advertisements that the broker has."""
    with caller.connect(observer=True) as client:
        answer = client.topics()
    if as_json:
        print_json(answer)
        return
    subjects = table("subject", "version", "attributes")
    for entry in answer["subjects"]:
        schema = schema_of(entry["subject"], entry["versions"])
        subjects.add_row(schema.subject, str(schema.version), _attributes(schema))
    advertisements = table("advertised by", "content", "publishers' context", "subscribers' context", "id")
    for entry in answer["advertisements"]:
        # Older brokers omit `publisher_context_all`.
        publishers = "all" if entry.get("publisher_context_all") else _names(entry["publisher_context"])
        subscribers = _names(entry["subscriber_context"])
        advertisements.add_row(
            entry["publisher"], entry["content"] or "everything", publishers, subscribers, entry["id"]
        )
    for rows in (subjects, advertisements):
        if rows.row_count:
            out.print(rows, markup=False)
    if not subjects.row_count and not advertisements.row_count:
        out.print("nobody has advertised anything, and no subject has a schema", markup=False)


def define(caller: BrokerConnection, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
    """Define the schema of a subject, and print it.

    Args:
        caller: The connection to the broker.
        subject: The subject.
        attributes: The types of the attributes by name, in order.
        as_json: Print JSON.
    """
    schema = Schema(subject, attributes)
    with caller.connect() as client:
        _print_change("defined", client.schema(schema), as_json=as_json)


def extend(caller: BrokerConnection, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
    """Append attributes to the schema that the broker has for a subject, as a new version, and print it.

    Args:
        caller: The connection to the broker.
        subject: The subject.
        attributes: The types of the new attributes by name, in order.
        as_json: Print JSON.
    """
    with caller.connect() as client:
        _print_change("extended", client.schema(client.schema(subject).extend(attributes)), as_json=as_json)


def show(caller: BrokerConnection, subject: str, *, as_json: bool) -> None:
    """Print the schema of a subject."""
    with caller.connect(observer=True) as client:
        _print_schema(client.schema(subject), as_json=as_json)


def _print_change(verb: str, schema: Schema, *, as_json: bool) -> None:
    if not as_json:
        out.print(f"{verb} the schema of {schema.subject}: version {schema.version}", markup=False, soft_wrap=True)
    _print_schema(schema, as_json=as_json)


def _print_schema(schema: Schema, *, as_json: bool) -> None:
    if as_json:
        print_json({"subject": schema.subject, "version": schema.version, "versions": versions_of(schema)})
        return
    rows = table("attribute", "type", "since version")
    for number, added in enumerate(versions_of(schema), 1):
        for name, kind in added.items():
            rows.add_row(name, kind, str(number))
    out.print(rows, markup=False)


def _attributes(schema: Schema) -> str:
    return ", ".join(f"{name} {kind}" for added in versions_of(schema) for name, kind in added.items())


def _names(names: Any) -> str:
    return names if isinstance(names, str) else ", ".join(names)
