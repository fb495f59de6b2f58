"""Messages from a broker to a client: answers to requests, receipts, and news about notifications and contexts."""

from typing import Any

import msgspec

from tidings.model import errors
from tidings.model.errors import FilterError, PolicyError, RefusedError, SchemaError, SecurityError, TidingsError
from tidings.protocol.events import Values


class RequestDone(msgspec.Struct, frozen=True, array_like=True):
    """The broker has carried out a request.

    `findings` are warnings about the policy in the request, `id` is the id of the filter that the request concerned.
    """

    request: int
    findings: tuple[str, ...] = ()
    id: str = ""


class RequestRefused(msgspec.Struct, frozen=True, array_like=True):
    """The broker has refused a request. `error` is the name of the exception class; `reason` is its message.

    `text`, `position` and `rule` say where in the request the error is.
    """

    request: int
    error: str
    reason: str
    step: str = ""
    text: str = ""
    position: int = 0
    rule: int | None = None


class PublicationReceipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A publication has the requested durability; with its offset in the broker's journal and its acceptance time."""

    request: int
    offset: int
    timestamp: int


class PublicationReceipts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Several receipts in one message."""

    receipts: tuple[PublicationReceipt, ...]


class NotificationsLost(msgspec.Struct, frozen=True, array_like=True):
    """Sent in place of notifications that the broker dropped because the subscriber was too slow."""

    subscription: str
    count: int  # dropped at this point
    total: int


class ContextChanged(msgspec.Struct, frozen=True, array_like=True):
    """Another client that is allowed to has set this client's context."""

    context: Values


class QueryAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a `QueryRequest`."""

    request: int
    answer: Any


def refusal(request: int, error: TidingsError) -> RequestRefused:
    """Return the message that reports an error to the client."""
    name = type(error).__name__
    if isinstance(error, FilterError | PolicyError):
        return RequestRefused(
            request, name, error.message, "", error.text, error.position, getattr(error, "rule", None)
        )
    if isinstance(error, RefusedError):
        return RequestRefused(request, name, error.reason, error.step)
    if isinstance(error, SecurityError):
        return RequestRefused(request, name, error.reason, error.check)
    if isinstance(error, SchemaError):
        return RequestRefused(request, name, str(error), "", error.name or "")
    return RequestRefused(request, name, str(error))


def error_of(refused: RequestRefused) -> TidingsError:
    """Return the exception that a refusal reports; a `RefusedError` if its class is unknown here."""
    error_class: Any = getattr(errors, refused.error, RefusedError)
    if not isinstance(error_class, type) or not issubclass(error_class, TidingsError):
        error_class = RefusedError
    arguments: list[Any] = [refused.reason]
    if issubclass(error_class, RefusedError | SecurityError):
        arguments = [refused.step, refused.reason]
    elif issubclass(error_class, PolicyError):
        arguments += [refused.text, refused.position, refused.rule]
    elif issubclass(error_class, FilterError):
        arguments += [refused.text, refused.position]
    elif issubclass(error_class, SchemaError):
        arguments.append(refused.text or None)
    error: TidingsError = error_class(*arguments)
    return error
