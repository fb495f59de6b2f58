"""What a broker tells a client."""

from typing import Any

import msgspec

from tidings.model import errors
from tidings.model.errors import FilterError, PolicyError, RefusedError, SchemaError, SecurityError, TidingsError
from tidings.protocol.events import Values


class Done(msgspec.Struct, frozen=True, array_like=True):
    """It was done; `findings` are remarks on the policy that came with it, `id` is that of the filter it was about."""

    request: int
    findings: tuple[str, ...] = ()
    id: str = ""


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """It was not done. `error` names the kind of error; `text`, `position` and `rule` say where in what was given."""

    request: int
    error: str
    reason: str
    step: str = ""
    text: str = ""
    position: int = 0
    rule: int | None = None


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A publication is as safe as it was asked to be: its place in the broker's order, and the time of it."""

    request: int
    offset: int
    timestamp: int


class Receipts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    receipts: tuple[Receipt, ...]


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """In the place of notifications of a subscription that were lost, since their subscriber was too slow."""

    subscription: str
    count: int  # of these
    total: int


class Context(msgspec.Struct, frozen=True, array_like=True):
    """Another client, which may, has set this one's context."""

    context: Values


class Answer(msgspec.Struct, frozen=True, array_like=True):
    request: int
    answer: Any


def refusal(request: int, error: TidingsError) -> Refused:
    """An error as it is told."""
    name = type(error).__name__
    if isinstance(error, FilterError | PolicyError):
        return Refused(request, name, error.message, "", error.text, error.position, getattr(error, "rule", None))
    if isinstance(error, RefusedError):
        return Refused(request, name, error.reason, error.step)
    if isinstance(error, SecurityError):
        return Refused(request, name, error.reason, error.check)
    if isinstance(error, SchemaError):
        return Refused(request, name, str(error), "", error.name or "")
    return Refused(request, name, str(error))


def error_of(refused: Refused) -> TidingsError:
    """The error that was told; of a kind that is not known here, a `RefusedError`."""
    kind: Any = getattr(errors, refused.error, RefusedError)
    if not isinstance(kind, type) or not issubclass(kind, TidingsError):
        kind = RefusedError
    told: list[Any] = [refused.reason]
    if issubclass(kind, RefusedError | SecurityError):
        told = [refused.step, refused.reason]
    elif issubclass(kind, PolicyError):
        told += [refused.text, refused.position, refused.rule]
    elif issubclass(kind, FilterError):
        told += [refused.text, refused.position]
    elif issubclass(kind, SchemaError):
        told.append(refused.text or None)
    made: TidingsError = kind(*told)
    return made
