"""Whether a call fits the declaration of its element, and a rule the elements in it: the checks of every reader."""

import re
from collections.abc import Iterator

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.hints import did_you_mean
from tidings.model.limits import MAX_POLICY_ARGUMENTS
from tidings.model.values import checked_name, checked_value
from tidings.policy import registry
from tidings.policy.elements import Element, Kind, Parameter, Role
from tidings.policy.publication import PublicationRefused, read_publication
from tidings.policy.statement import (
    Argument,
    Call,
    Comparison,
    Matching,
    MessageType,
    Operation,
    Operator,
    Publication,
    Values,
    Variable,
)

VARIABLES = {
    "Message": "the message that the rule is applied to, as text",
    "Sender": "the previous hop",
    "Receiver": "the next hop; empty where there is none",
    "Broker": "the broker that applies the rule",
    "Exception": "what went wrong; only in OnException",
}
# What XML cannot carry, a policy cannot hold: it has two notations that say the same.
UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INSTEAD = {
    "BlockMessage": "; UninsertMessage() keeps a message out of the tables",
    "UninsertMessage": "; BlockMessage() stops a message that is sent on",
}
_SHOWN = {
    Kind.BOOLEAN: "True or False",
    Kind.NUMBER: "a number",
    Kind.STRING: "a word or a string",
    Kind.NAME: "the name of an attribute",
    Kind.VALUE: "a single value",
    Kind.LIST: "a list, as in [a, b]",
    Kind.PUBLICATION: 'an event in double quotes, as in "[class,Alarm],[message,$Message]"',
}


class CallRefused(Exception):  # noqa: N818 - never leaves the room
    """What is wrong; `argument` is the place of the offending argument, `offset` a character inside of it."""

    def __init__(self, message: str, argument: int | None = None, offset: int = 0) -> None:
        self.message, self.argument, self.offset = message, argument, offset


def checked_call(name: str, arguments: tuple[Argument, ...], role: Role) -> Call:
    """The call with its arguments as the element takes them, or a `CallRefused`."""
    element = _element(name, role)
    given = _spread(element, arguments)
    if len(given) > MAX_POLICY_ARGUMENTS:
        raise CallRefused(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) arguments")
    spread = given is not arguments
    _check_count(element, len(given))
    checked = []
    for place, argument in enumerate(given):
        parameter = element.parameters[min(place, len(element.parameters) - 1)]
        try:
            checked.append(_fitting(element, parameter.kind, argument))
            _check_choice(element, parameter, argument)
        except CallRefused as refused:
            written = min(place, len(arguments) - 1) if spread else place
            raise CallRefused(refused.message, written, refused.offset) from None
    return Call(name, tuple(checked))


def checked_alone(call: Call) -> Call:
    """Refuses a condition without a comparison that is neither true nor false by itself."""
    gives = _element(call.name, Role.CONDITION).gives
    if gives is Kind.NUMBER:
        raise CallRefused(f"{call.name}() is a number and needs a comparison, as in {call.name}() > 0.5")
    if gives is not Kind.BOOLEAN:
        raise CallRefused(f"{call.name}() is no truth and needs a comparison, as in {call.name}() = 'x'")
    return call


def checked_comparison(call: Call, operator: Operator, value: Constant | Variable | Values) -> Comparison:
    """Refuses what the value of the condition does not compare with."""
    gives = _element(call.name, Role.CONDITION).gives or Kind.VALUE
    if (operator == "in") is not isinstance(value, Values):
        raise CallRefused("in takes a list, as in [a, b]; the other comparisons take a single value")
    if gives is Kind.BOOLEAN and operator not in ("=", "!="):
        raise CallRefused(f"{call.name}() is true or false and compares only by = and !=")
    for one in value.items if isinstance(value, Values) else (value,):
        _check_scalar(one)
        if _kind(one) is not gives and gives is not Kind.VALUE:
            raise CallRefused(f"{call.name}() is a {gives} and compares with {_SHOWN[gives]}")
    if isinstance(value, Values) and len(value.items) > MAX_POLICY_ARGUMENTS:
        raise CallRefused(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) values")
    return Comparison(call, operator, value)


def misplaced(
    node: Call | Comparison, operation: Operation, message: MessageType, matching: Matching, *, exception: bool
) -> str | None:
    """Why an element cannot stand in such a rule, or None."""
    call = node.call if isinstance(node, Comparison) else node
    element = registry.find(call.name)
    if element is None:
        return f"there is no element {call.name}"
    if operation not in element.operations:
        return f"{call.name}() stands only in {_either(element.operations)} rules{_INSTEAD.get(call.name, '')}"
    if message not in element.messages:
        return f"{call.name}() is for {_either(element.messages)} rules; this one is On({operation}, {message})"
    if matching not in element.matching:
        return f"{call.name}() needs @matching: {_either(element.matching)}"
    if not exception and "Exception" in _variables(node):
        return "$Exception is known only in OnException"
    return None


def _element(name: str, role: Role) -> Element:
    element = registry.find(name)
    if element is None:
        others = registry.names(Role.ACTION if role is Role.CONDITION else Role.CONDITION)
        hint = did_you_mean(name, registry.names(role)) or did_you_mean(name, others)
        raise CallRefused(f"there is no {role} {name[:40]}{hint or '; there are ' + ', '.join(registry.names(role))}")
    if element.role is not role:
        place = "actions stand after Then" if element.role is Role.ACTION else "conditions stand after If"
        raise CallRefused(f"{name} is {'an' if element.role is Role.ACTION else 'a'} {element.role}; {place}")
    return element


def _spread(element: Element, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """`RemoveAttributes([a, b])` is `RemoveAttributes(a, b)`: the paper speaks of an attributeList."""
    last = len(element.parameters) - 1
    if last < 0 or len(arguments) != last + 1:
        return arguments
    taken, given = element.parameters[last], arguments[last]
    if taken.many and taken.kind is not Kind.LIST and isinstance(given, Values):
        return (*arguments[:last], *given.items)
    return arguments


def _check_count(element: Element, count: int) -> None:
    least = sum(not one.optional for one in element.parameters)
    most = None if any(one.many for one in element.parameters) else len(element.parameters)
    if count < least:
        raise CallRefused(
            f"{element.name} needs {least if least > 1 else 'an'} argument{'s' * (least > 1)}: {element.signature}"
        )
    if most is not None and count > most:
        if any(one.kind is Kind.PUBLICATION for one in element.parameters):
            raise CallRefused(f'the event of {element.name} stands in double quotes: "[class,X],[message,$Message]"')
        takes = "takes no arguments" if most == 0 else f"takes {most} argument{'s' * (most > 1)}, not {count}"
        raise CallRefused(f"{element.name} {takes}: {element.signature}")


def _fitting(element: Element, kind: Kind, argument: Argument) -> Argument:
    if kind is Kind.PUBLICATION:
        return _publication(argument)
    if isinstance(argument, Values) and kind is Kind.LIST:
        if len(argument.items) > MAX_POLICY_ARGUMENTS:
            raise CallRefused(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) values")
        for one in argument.items:
            _check_scalar(one)
        return argument
    if isinstance(argument, Constant | Variable):
        _check_scalar(argument)
        found = _kind(argument)
        if kind in (found, Kind.VALUE) or (
            kind is Kind.NAME and isinstance(argument, Constant) and found is Kind.STRING
        ):
            if kind is Kind.NAME:
                _check_name(argument)
            return argument
    raise CallRefused(f"{element.signature} takes {_SHOWN[kind]} here")


def _check_choice(element: Element, parameter: Parameter, argument: Argument) -> None:
    if parameter.choices and (not isinstance(argument, Constant) or argument.value not in parameter.choices):
        raise CallRefused(f"{element.signature} takes {' or '.join(parameter.choices)} here")


def _publication(argument: Argument) -> Publication:
    if isinstance(argument, Constant) and isinstance(argument.value, str):
        _check_scalar(argument)
        try:
            argument = read_publication(argument.value)
        except PublicationRefused as refused:
            raise CallRefused(refused.message, offset=refused.offset) from None
    if not isinstance(argument, Publication):
        raise CallRefused(f"this takes {_SHOWN[Kind.PUBLICATION]}")
    for name, value in argument.attributes:
        _check_name(Constant(name))
        _check_scalar(value)
    return argument


def _check_scalar(value: Argument) -> None:
    if isinstance(value, Variable):
        if value.name not in VARIABLES:
            hint = did_you_mean(value.name, VARIABLES).replace("mean ", "mean $")
            raise CallRefused(
                f"there is no variable ${value.name[:40]}{hint or '; there are $' + ', $'.join(VARIABLES)}"
            )
    elif isinstance(value, Constant):
        try:
            plain = checked_value(value.value)
        except InvalidValueError as error:
            raise CallRefused(str(error)) from None
        if isinstance(plain, str) and UNSPEAKABLE.search(plain):
            raise CallRefused("a control character; a policy cannot hold one")
    else:
        raise CallRefused("a single value is needed here")


def _check_name(argument: Argument) -> None:
    try:
        name = checked_name(argument.value if isinstance(argument, Constant) else None)
    except InvalidValueError as error:
        raise CallRefused(str(error)) from None
    if UNSPEAKABLE.search(name):
        raise CallRefused("a control character; a policy cannot hold one")


def _kind(value: Constant | Variable) -> Kind:
    plain = "" if isinstance(value, Variable) else value.value
    if isinstance(plain, bool):
        return Kind.BOOLEAN
    return Kind.STRING if isinstance(plain, str) else Kind.NUMBER


def _variables(node: Call | Comparison) -> set[str]:
    arguments: Iterator[Argument] = iter(
        (*node.call.arguments, node.value) if isinstance(node, Comparison) else node.arguments
    )
    found: set[str] = set()
    for one in arguments:
        inside = one.items if isinstance(one, Values) else (one,)
        if isinstance(one, Publication):
            inside = tuple(value for _, value in one.attributes)
        found.update(value.name for value in inside if isinstance(value, Variable))
    return found


def _either(words: frozenset[Operation] | frozenset[MessageType] | frozenset[Matching]) -> str:
    *some, last = sorted(words)
    return f"{', '.join(some)} or {last}" if some else str(last)
