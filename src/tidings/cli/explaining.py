"""`tidings explain`: why an event does, or does not, reach a subscription."""

from typing import Any, NamedTuple
from uuid import UUID

from tidings.cli.caller import Caller
from tidings.cli.terminal import out, print_json
from tidings.cli.values import json_object
from tidings.model.errors import TidingsError
from tidings.model.explanation import Explanation


class Question(NamedTuple):
    """An event by its id, or one that might come, as JSON; to a subscription, or to all that a client has."""

    event: str
    subscription: str | None
    client: str | None
    publisher: str | None
    subject: str | None
    subscribers: str | None


def explain(caller: Caller, question: Question, *, as_json: bool) -> None:
    event = _event(question.event)
    with caller.opened(observer=True) as client:
        found = client.explain(
            event,
            question.subscription,
            publisher=question.publisher,
            subject=question.subject,
            subscribers=question.subscribers,
            client=question.client,
        )
    if not found:
        raise TidingsError(f"{question.client or client.name} has no subscription at {client.broker}")
    if as_json:
        for one in found:
            print_json(_told(one))
        return
    for one in found:
        out.print(str(one), markup=False, soft_wrap=True)


def _event(text: str) -> Any:
    try:
        return UUID(text)
    except ValueError:
        return json_object(text, "the event, unless it is an id,")


def _told(one: Explanation) -> dict[str, Any]:
    return {
        "subscription": one.subscription,
        "delivered": one.delivered,
        "step": one.step,
        "reason": one.reason,
        "steps": [{"step": step.name, "passed": step.passed, "reason": step.reason} for step in one.steps],
        "attributes": None if one.notification is None else dict(one.notification.attributes),
        "rules": [str(rule) for rule in one.rules],
    }
