"""Check element calls and their position in a rule; shared by the text parser, the XML reader and the presets.

A call must fit the declaration of its element: role, number, kinds and values of the arguments. An element must be
allowed in a rule with that operation, message type and matching.
"""

import re
from collections.abc import Iterator

from tidings.model.errors import InvalidValueError, did_you_mean
from tidings.model.expression import Constant
from tidings.model.limits import MAX_POLICY_ARGUMENTS
from tidings.model.values import checked_name, checked_value
from tidings.policy import registry
from tidings.policy.ast import (
    Argument,
    ElementCall,
    ElementComparison,
    Matching,
    MessageType,
    Operator,
    PublishTemplate,
    RuleOperation,
    Values,
    Variable,
)
from tidings.policy.elements import ArgumentKind, Element, ElementRole, Parameter
from tidings.policy.publish_template import TemplateRefusal, parse_publication

VARIABLES = {
    "Message": "the message that the rule is applied to, as text",
    "Sender": "the previous hop",
    "Receiver": "the next hop; empty where there is none",
    "Broker": "the broker that applies the rule",
    "Exception": "what went wrong; only in OnException",
}
# Characters that XML cannot contain. A policy must not contain them either: both notations express the same policies.
CONTROL_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HINTS = {
    "BlockMessage": "; UninsertMessage() keeps a message out of the tables",
    "UninsertMessage": "; BlockMessage() stops a message that is sent on",
}
_KIND_TEXTS = {
    ArgumentKind.BOOLEAN: "True or False",
    ArgumentKind.NUMBER: "a number",
    ArgumentKind.STRING: "a word or a string",
    ArgumentKind.NAME: "the name of an attribute",
    ArgumentKind.VALUE: "a single value",
    ArgumentKind.LIST: "a list, as in [a, b]",
    ArgumentKind.PUBLICATION: 'an event in double quotes, as in "[class,Alarm],[message,$Message]"',
}


class CallRefusal(Exception):  # noqa: N818 - never leaves the package
    """A call, comparison or argument is not allowed.

    `argument` is the index of the offending argument, or None; `offset` is a character position inside it. The parsers
    convert this exception into a `PolicyError` with a position in their text.
    """

    def __init__(self, message: str, argument: int | None = None, offset: int = 0) -> None:
        self.message, self.argument, self.offset = message, argument, offset


def checked_call(name: str, arguments: tuple[Argument, ...], role: ElementRole) -> ElementCall:
    """Return the call with checked arguments; raise `CallRefusal` if they do not fit the element's declaration.

    Lists are spread over a last parameter that takes many values, and a quoted event becomes a `PublishTemplate`.
    """
    element = _element(name, role)
    spread = _spread_list(element, arguments)
    if len(spread) > MAX_POLICY_ARGUMENTS:
        raise CallRefusal(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) arguments")
    is_spread = spread is not arguments
    _check_count(element, len(spread))
    checked = []
    for place, argument in enumerate(spread):
        parameter = element.parameters[min(place, len(element.parameters) - 1)]
        try:
            checked.append(_checked_argument(element, parameter.kind, argument))
            _check_choice(element, parameter, argument)
        except CallRefusal as refused:
            argument_index = min(place, len(arguments) - 1) if is_spread else place
            raise CallRefusal(refused.message, argument_index, refused.offset) from None
    return ElementCall(name, tuple(checked))


def checked_boolean_call(call: ElementCall) -> ElementCall:
    """Return the call if its condition is boolean; raise `CallRefusal` if it needs a comparison."""
    gives = _element(call.name, ElementRole.CONDITION).gives
    if gives is ArgumentKind.NUMBER:
        raise CallRefusal(f"{call.name}() is a number and needs a comparison, as in {call.name}() > 0.5")
    if gives is not ArgumentKind.BOOLEAN:
        raise CallRefusal(f"{call.name}() is no truth and needs a comparison, as in {call.name}() = 'x'")
    return call


def checked_comparison(call: ElementCall, operator: Operator, value: Constant | Variable | Values) -> ElementComparison:
    """Return the comparison; raise `CallRefusal` if the value is not comparable with the condition by this operator."""
    gives = _element(call.name, ElementRole.CONDITION).gives or ArgumentKind.VALUE
    if (operator == "in") is not isinstance(value, Values):
        raise CallRefusal("in takes a list, as in [a, b]; the other comparisons take a single value")
    if gives is ArgumentKind.BOOLEAN and operator not in ("=", "!="):
        raise CallRefusal(f"{call.name}() is true or false and compares only by = and !=")
    for item in value.items if isinstance(value, Values) else (value,):
        _check_scalar(item)
        if _kind(item) is not gives and gives is not ArgumentKind.VALUE:
            raise CallRefusal(f"{call.name}() is a {gives} and compares with {_KIND_TEXTS[gives]}")
    if isinstance(value, Values) and len(value.items) > MAX_POLICY_ARGUMENTS:
        raise CallRefusal(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) values")
    return ElementComparison(call, operator, value)


def placement_complaint(
    node: ElementCall | ElementComparison,
    operation: RuleOperation,
    message: MessageType,
    matching: Matching,
    *,
    exception: bool,
) -> str | None:
    """Return why a condition or action is not allowed in a rule of this kind, or None if it is allowed.

    Args:
        node: The call, or the comparison with the call in it.
        operation: The operation of the rule.
        message: The message type of the rule.
        matching: The rule's `@matching`.
        exception: Whether the element is inside `OnException`, where `$Exception` has a value.
    """
    call = node.call if isinstance(node, ElementComparison) else node
    element = registry.find(call.name)
    if element is None:
        return f"there is no element {call.name}"
    if operation not in element.operations:
        return f"{call.name}() stands only in {_one_of_text(element.operations)} rules{_HINTS.get(call.name, '')}"
    if message not in element.messages:
        return f"{call.name}() is for {_one_of_text(element.messages)} rules; this one is On({operation}, {message})"
    if matching not in element.matching:
        return f"{call.name}() needs @matching: {_one_of_text(element.matching)}"
    if not exception and "Exception" in _variables(node):
        return "$Exception is known only in OnException"
    return None


def _element(name: str, role: ElementRole) -> Element:
    element = registry.find(name)
    if element is None:
        others = registry.names(ElementRole.ACTION if role is ElementRole.CONDITION else ElementRole.CONDITION)
        hint = did_you_mean(name, registry.names(role)) or did_you_mean(name, others)
        raise CallRefusal(f"there is no {role} {name[:40]}{hint or '; there are ' + ', '.join(registry.names(role))}")
    if element.role is not role:
        place = "actions stand after Then" if element.role is ElementRole.ACTION else "conditions stand after If"
        raise CallRefusal(f"{name} is {'an' if element.role is ElementRole.ACTION else 'a'} {element.role}; {place}")
    return element


def _spread_list(element: Element, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Spread a list in the last place: `RemoveAttributes([a, b])` becomes `RemoveAttributes(a, b)`.

    The paper's grammar has an attributeList there.
    """
    last = len(element.parameters) - 1
    if last < 0 or len(arguments) != last + 1:
        return arguments
    parameter, argument = element.parameters[last], arguments[last]
    if parameter.many and parameter.kind is not ArgumentKind.LIST and isinstance(argument, Values):
        return (*arguments[:last], *argument.items)
    return arguments


def _check_count(element: Element, count: int) -> None:
    least = sum(not parameter.optional for parameter in element.parameters)
    most = None if any(parameter.many for parameter in element.parameters) else len(element.parameters)
    if count < least:
        raise CallRefusal(
            f"{element.name} needs {least if least > 1 else 'an'} argument{'s' * (least > 1)}: {element.signature}"
        )
    if most is not None and count > most:
        if any(parameter.kind is ArgumentKind.PUBLICATION for parameter in element.parameters):
            raise CallRefusal(f'the event of {element.name} stands in double quotes: "[class,X],[message,$Message]"')
        takes = "takes no arguments" if most == 0 else f"takes {most} argument{'s' * (most > 1)}, not {count}"
        raise CallRefusal(f"{element.name} {takes}: {element.signature}")


def _checked_argument(element: Element, kind: ArgumentKind, argument: Argument) -> Argument:
    """Return an argument as its parameter takes it; raise `CallRefusal` if the kind is wrong."""
    if kind is ArgumentKind.PUBLICATION:
        return _publication(argument)
    if isinstance(argument, Values) and kind is ArgumentKind.LIST:
        if len(argument.items) > MAX_POLICY_ARGUMENTS:
            raise CallRefusal(f"more than MAX_POLICY_ARGUMENTS ({MAX_POLICY_ARGUMENTS:,}) values")
        for item in argument.items:
            _check_scalar(item)
        return argument
    if isinstance(argument, Constant | Variable):
        _check_scalar(argument)
        actual_kind = _kind(argument)
        if kind in (actual_kind, ArgumentKind.VALUE) or (
            kind is ArgumentKind.NAME and isinstance(argument, Constant) and actual_kind is ArgumentKind.STRING
        ):
            if kind is ArgumentKind.NAME:
                _check_name(argument)
            return argument
    raise CallRefusal(f"{element.signature} takes {_KIND_TEXTS[kind]} here")


def _check_choice(element: Element, parameter: Parameter, argument: Argument) -> None:
    if parameter.choices and (not isinstance(argument, Constant) or argument.value not in parameter.choices):
        raise CallRefusal(f"{element.signature} takes {' or '.join(parameter.choices)} here")


def _publication(argument: Argument) -> PublishTemplate:
    if isinstance(argument, Constant) and isinstance(argument.value, str):
        _check_scalar(argument)
        try:
            argument = parse_publication(argument.value)
        except TemplateRefusal as refused:
            raise CallRefusal(refused.message, offset=refused.offset) from None
    if not isinstance(argument, PublishTemplate):
        raise CallRefusal(f"this takes {_KIND_TEXTS[ArgumentKind.PUBLICATION]}")
    for name, value in argument.attributes:
        _check_name(Constant(name))
        _check_scalar(value)
    return argument


def _check_scalar(value: Argument) -> None:
    if isinstance(value, Variable):
        if value.name not in VARIABLES:
            hint = did_you_mean(value.name, VARIABLES).replace("mean ", "mean $")
            raise CallRefusal(
                f"there is no variable ${value.name[:40]}{hint or '; there are $' + ', $'.join(VARIABLES)}"
            )
    elif isinstance(value, Constant):
        try:
            plain = checked_value(value.value)
        except InvalidValueError as error:
            raise CallRefusal(str(error)) from None
        if isinstance(plain, str) and CONTROL_CHARACTERS.search(plain):
            raise CallRefusal("a control character; a policy cannot hold one")
    else:
        raise CallRefusal("a single value is needed here")


def _check_name(argument: Argument) -> None:
    try:
        name = checked_name(argument.value if isinstance(argument, Constant) else None)
    except InvalidValueError as error:
        raise CallRefusal(str(error)) from None
    if CONTROL_CHARACTERS.search(name):
        raise CallRefusal("a control character; a policy cannot hold one")


def _kind(value: Constant | Variable) -> ArgumentKind:
    plain = "" if isinstance(value, Variable) else value.value
    if isinstance(plain, bool):
        return ArgumentKind.BOOLEAN
    return ArgumentKind.STRING if isinstance(plain, str) else ArgumentKind.NUMBER


def _variables(node: ElementCall | ElementComparison) -> set[str]:
    arguments: Iterator[Argument] = iter(
        (*node.call.arguments, node.value) if isinstance(node, ElementComparison) else node.arguments
    )
    names: set[str] = set()
    for argument in arguments:
        values = argument.items if isinstance(argument, Values) else (argument,)
        if isinstance(argument, PublishTemplate):
            values = tuple(value for _, value in argument.attributes)
        names.update(value.name for value in values if isinstance(value, Variable))
    return names


def _one_of_text(words: frozenset[RuleOperation] | frozenset[MessageType] | frozenset[Matching]) -> str:
    *some, last = sorted(words)
    return f"{', '.join(some)} or {last}" if some else str(last)
