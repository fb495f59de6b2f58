"""What actions mean: each becomes a function that records in the outcome what is to be done."""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from tidings.model.expression import Constant
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Attributes
from tidings.policy import registry, rendering
from tidings.policy.arguments import resolved
from tidings.policy.elements import Effect
from tidings.policy.situation import Situation
from tidings.policy.statement import Call

Action: TypeAlias = Callable[[Situation], None]
TRACE_ATTRIBUTE = "$trace.{broker}.{what}"
_AUGMENTS: dict[str, tuple[str, Callable[[Situation], Any]]] = {
    "AugmentBrokerHostInfo": ("host", lambda situation: situation.host),
    "AugmentBrokerLoadIndex": ("load", lambda situation: situation.load),
    "AugmentProcessingTime": ("microseconds", lambda _: 0),  # the driver knows
}


def executed(call: Call, place: Hashable) -> Action:
    """The action as a function; `place` says where in its policy it stands, for what is told once."""
    element = registry.find(call.name)
    if element is None:
        return _missing(call.name)
    action = _built_in(call) if element.function is None else _own(element.function, call)
    return _told_once(action, place) if element.effect is Effect.TELLS else action


def _told_once(action: Action, place: Hashable) -> Action:
    """Once per rule, message and broker."""

    def tell(situation: Situation) -> None:
        key = place, situation.source.key
        if key not in situation.facts.once:
            action(situation)
            situation.outcome.once.append(key)

    return tell


def _built_in(call: Call) -> Action:
    match call.name:
        case "TrimAttributes":
            return _trim
        case "RemoveAttributes":
            names = [str(one.value) for one in call.arguments if isinstance(one, Constant)]
            return lambda situation: situation.remove(*names)
        case "KeepOnlyAttributes":
            names = [str(one.value) for one in call.arguments if isinstance(one, Constant)]
            return lambda situation: situation.keep_only(*names)
        case "AppendPrevHop":
            return lambda situation: situation.outcome.added.append(("PrevHop", situation.sender))
        case "ToXML":
            return lambda situation: situation.convert(rendering.xml)
        case "ToJSON":
            return lambda situation: situation.convert(rendering.json)
        case "BlockMessage":
            return Situation.block
        case "UninsertMessage":
            return _uninsert
        case "FloodMessage":
            return Situation.flood
        case "ForwardTo":
            return lambda situation: situation.outcome.forwards_to.extend(
                str(resolved(one, situation)) for one in call.arguments
            )
        case "Publish":
            return lambda situation: situation.outcome.publishes.append(_event(call, situation))
        case "Log":
            return lambda situation: situation.log(_line(call, situation))
        case "Persist":
            return lambda situation: situation.persist(*(str(resolved(one, situation)) for one in call.arguments))
    return _augment(call) if call.name in _AUGMENTS else _missing(call.name)


def _trim(situation: Situation) -> None:
    """By the names of the rule's filter. A rule that travels with the message has none: nothing is trimmed, not all."""
    if situation.source.kind != "message":
        situation.outcome.trims = True


def _uninsert(situation: Situation) -> None:
    situation.outcome.uninserts = True


def _augment(call: Call) -> Action:
    what, measure = _AUGMENTS[call.name]
    as_attributes = call.arguments == (Constant("attributes"),)

    def add(situation: Situation) -> None:
        if as_attributes:
            name = TRACE_ATTRIBUTE.format(broker=situation.broker, what=what)
            situation.outcome.added.append((name, measure(situation)))
        else:
            situation.outcome.trace[what] = measure(situation)

    return add


def _event(call: Call, situation: Situation) -> Attributes:
    said = resolved(call.arguments[0], situation)
    return Attributes({name: _cut(value) if isinstance(value, str) else value for name, value in said.items()})


def _line(call: Call, situation: Situation) -> str:
    values = [str(resolved(one, situation)) for one in call.arguments]
    return " ".join(values) if values else situation.message


def _cut(text: str) -> str:
    """A large message is told by its beginning: a value has its limit."""
    return text if len(text) <= MAX_STRING_CHARACTERS else text[: MAX_STRING_CHARACTERS - 3] + "..."


def _missing(name: str) -> Action:
    def refuse(_: Situation) -> None:
        raise LookupError(f"this process knows no action {name}; register it before the policy is used")

    return refuse


def _own(function: Callable[..., Any], call: Call) -> Action:
    return lambda situation: function(situation, *(resolved(one, situation) for one in call.arguments))
