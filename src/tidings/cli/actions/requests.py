"""The commands `tidings advertise`, `context`, `explain`, `schema` and `topics`: requests of a client to its broker."""

import contextlib
from typing import Any, NamedTuple
from uuid import UUID

from tidings.cli.connection import BrokerConnection, request_timeout, until_interrupted
from tidings.cli.options import parse_json_object
from tidings.cli.output import err, out, print_json, table
from tidings.model.errors import RequestTimeoutError, TidingsError
from tidings.model.explanation import Explanation
from tidings.model.schema import Schema, schema_of, versions_of


class AdvertiseOptions(NamedTuple):
    """The advertisement that the command `advertise` makes. `publisher_context` None offers all context names."""

    content: str
    publisher_context: list[str] | None
    subscriber_context: list[str]
    policy: Any
    format: str


def advertise(caller: BrokerConnection, options: AdvertiseOptions, *, seconds: float | None, as_json: bool) -> None:
    """Advertise until Ctrl-C, or for `seconds`: an advertisement ends with its client's connection.

    Args:
        caller: The connection to the broker.
        options: The advertisement.
        seconds: How long to stay connected; None: until Ctrl-C or until the client is closed.
        as_json: Print JSON.
    """
    with until_interrupted(), caller.connect(request_timeout(seconds), as_json=as_json) as client:
        advertisement = client.advertise(
            options.content,
            publisher_context=options.publisher_context,
            subscriber_context=options.subscriber_context,
            policy=options.policy,
            format=options.format,
        )
        if as_json:
            content = str(advertisement.advertisement.content)
            print_json({"id": advertisement.id, "publisher": client.name, "broker": client.broker, "content": content})
        else:
            text = f"{client.name} at {client.broker} advertises {advertisement.advertisement.content or 'everything'}"
            out.print(f"{text} ({advertisement.id})", markup=False, soft_wrap=True)
        for finding in advertisement.findings:
            err.print(finding, markup=False, soft_wrap=True)
        with contextlib.suppress(RequestTimeoutError):  # `seconds` are over
            client.until_closed(seconds)


def set_context(caller: BrokerConnection, of: str, values: dict[str, Any], *, as_json: bool) -> None:
    """Replace the whole context of another client, which must have allowed this client to set it.

    Args:
        caller: The connection to the broker.
        of: The name of the other client.
        values: The new context.
        as_json: Print JSON.
    """
    with caller.connect() as client:
        client.set_context(values, of=of)
        broker = client.broker
    if as_json:
        print_json({"client": of, "context": values})
    else:
        pairs = " ".join(f"{name}={value}" for name, value in values.items())
        out.print(f"set the context of {of}, at {broker}: {pairs or 'empty'}", markup=False, soft_wrap=True)


def show_contexts(caller: BrokerConnection, client_name: str | None, *, as_json: bool) -> None:
    """Print the contexts that the broker has: of its own clients, and of other clients as far as its routing tables
    need them.

    Raises TidingsError if the broker has no context of the client `client_name`.
    """
    with caller.connect(observer=True) as client:
        contexts: dict[str, Any] = client.ask("tables")["contexts"]
    if client_name is not None and client_name not in contexts:
        raise TidingsError(f"the broker knows no context of {client_name}")
    selected = contexts if client_name is None else {client_name: contexts[client_name]}
    if as_json:
        print_json(selected)
        return
    rows = table("client", "context")
    for name, values in selected.items():
        rows.add_row(name, " ".join(f"{key}={value}" for key, value in values.items()))
    out.print(rows, markup=False)


class ExplainOptions(NamedTuple):
    """The question of the command `explain`: does an event reach a subscription, or the subscriptions of a client?

    `event` is the id of an event, or the attributes of a hypothetical one as JSON; the other fields complete the
    latter.
    """

    event: str
    subscription: str | None
    client: str | None
    publisher: str | None
    subject: str | None
    subscribers: str | None


def explain(caller: BrokerConnection, question: ExplainOptions, *, as_json: bool) -> None:
    """Print for each subscription why the event does, or does not, reach it. Raises TidingsError if there is none."""
    event = _event_or_id(question.event)
    with caller.connect(observer=True) as client:
        explanations = client.explain(
            event,
            question.subscription,
            publisher=question.publisher,
            subject=question.subject,
            subscribers=question.subscribers,
            client=question.client,
        )
    if not explanations:
        raise TidingsError(f"{question.client or client.name} has no subscription at {client.broker}")
    if as_json:
        for explanation in explanations:
            print_json(_json_explanation(explanation))
        return
    for explanation in explanations:
        out.print(str(explanation), markup=False, soft_wrap=True)


def _event_or_id(text: str) -> Any:
    """Return the event's id, or its attributes if the text is a JSON object."""
    try:
        return UUID(text)
    except ValueError:
        return parse_json_object(text, "the event, unless it is an id,")


def _json_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as a dictionary for JSON."""
    return {
        "subscription": explanation.subscription,
        "delivered": explanation.delivered,
        "step": explanation.step,
        "reason": explanation.reason,
        "steps": [{"step": step.name, "passed": step.passed, "reason": step.reason} for step in explanation.steps],
        "attributes": None if explanation.notification is None else dict(explanation.notification.attributes),
        "rules": [str(rule) for rule in explanation.rules],
    }


def show_topics(caller: BrokerConnection, *, as_json: bool) -> None:
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


def define_schema(caller: BrokerConnection, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
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


def extend_schema(caller: BrokerConnection, subject: str, attributes: dict[str, Any], *, as_json: bool) -> None:
    """Append attributes to the schema that the broker has for a subject, as a new version, and print it.

    Args:
        caller: The connection to the broker.
        subject: The subject.
        attributes: The types of the new attributes by name, in order.
        as_json: Print JSON.
    """
    with caller.connect() as client:
        _print_change("extended", client.schema(client.schema(subject).extend(attributes)), as_json=as_json)


def show_schema(caller: BrokerConnection, subject: str, *, as_json: bool) -> None:
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
