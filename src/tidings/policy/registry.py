"""The registry of rule elements: the built-in ones, and user-defined ones, which decorators register.

The function of a user-defined element gets an `ElementContext` first and then the arguments of the call, so its
parameters from the second on are the element's parameters. Arguments are checked against the annotations `str`, `bool`,
`int`, `float` and `list` when a policy is parsed; a parameter without annotation takes any single value.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.policy.ast import Matching, MessageType, PublishTemplate, RuleOperation
from tidings.policy.elements import BUILT_IN, ActionEffect, ArgumentKind, Element, ElementRole, Parameter

Function = TypeVar("Function", bound=Callable[..., Any])

KEYWORDS = ("PolicyStatement", "On", "If", "Elseif", "Then", "OnException")
_RESERVED = frozenset(word.lower() for word in (*KEYWORDS, "Else", "In", "And", "Or", "Not", "True", "False"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS: dict[Any, ArgumentKind] = {
    str: ArgumentKind.STRING,
    bool: ArgumentKind.BOOLEAN,
    int: ArgumentKind.NUMBER,
    float: ArgumentKind.NUMBER,
    list: ArgumentKind.LIST,
    tuple: ArgumentKind.LIST,
    PublishTemplate: ArgumentKind.PUBLICATION,
    Any: ArgumentKind.VALUE,
    inspect.Parameter.empty: ArgumentKind.VALUE,
}
_elements: dict[str, Element] = {element.name: element for element in BUILT_IN}


_version = 0


def version() -> int:
    """Return a number that changes when an element is registered or unregistered, for caches of compiled policies."""
    return _version


def find(name: str) -> Element | None:
    """Return the element with this name, or None."""
    return _elements.get(name)


def names(role: ElementRole | None = None) -> tuple[str, ...]:
    """Return the names of all elements, or of all elements of a role."""
    return tuple(name for name, element in _elements.items() if role in (None, element.role))


def register(element: Element) -> None:
    """Add an element; raise a `PolicyError` if its name is in use, reserved or not an identifier."""
    name = element.name
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        raise PolicyError(f"{name[:40]!r} is no name for an element; it takes letters, digits and _")
    if name.lower() in _RESERVED:
        raise PolicyError(f"{name} is a word of the language; choose another name")
    same_name = next((other for other in _elements if other.lower() == name.lower()), None)
    if same_name is not None:
        built_in = " and built in" if any(element.name == same_name for element in BUILT_IN) else ""
        raise PolicyError(f"{same_name} is registered already{built_in}; choose another name")
    global _version
    _elements[name] = element
    _version += 1


def unregister(name: str) -> None:
    """Remove a user-defined element; raise a `PolicyError` for a built-in one."""
    if any(element.name == name for element in BUILT_IN):
        raise PolicyError(f"{name} is built in and stays")
    global _version
    _elements.pop(name, None)
    _version += 1


@overload
def policy_condition(name: Function) -> Function: ...
@overload
def policy_condition(
    name: str | None = None, *, needs_receiver: bool = False, needs_filter: bool = False
) -> Callable[[Function], Function]: ...
def policy_condition(name: Any = None, *, needs_receiver: bool = False, needs_filter: bool = False) -> Any:
    """Register a function as a condition; `is_weekend` becomes `IsWeekend` unless a name is given.

    The function's return annotation is the kind of the condition's value; without it the condition is boolean. A
    condition that needs the receiver or the associated filter is allowed only after matching.
    """

    def register_function(function: Function) -> Function:
        gives = _argument_kind(typing.get_type_hints(function).get("return", bool), function, "what it returns")
        more: dict[str, Any] = {"operations": frozenset({RuleOperation.FORWARD})} if needs_receiver else {}
        more |= {"matching": frozenset({Matching.AFTER})} if needs_receiver or needs_filter else {}
        _register(
            function,
            name,
            ElementRole.CONDITION,
            gives=gives,
            needs_receiver=needs_receiver,
            needs_filter=needs_filter,
            **more,
        )
        return function

    return _as_decorator(name, register_function)


@overload
def policy_action(name: Function) -> Function: ...
@overload
def policy_action(
    name: str | None = None,
    *,
    effect: ActionEffect | str = ActionEffect.ADDS,
    operations: Iterable[RuleOperation | str] = (RuleOperation.FORWARD,),
    messages: Iterable[MessageType | str] = tuple(MessageType),
) -> Callable[[Function], Function]: ...
def policy_action(
    name: Any = None,
    *,
    effect: ActionEffect | str = ActionEffect.ADDS,
    operations: Iterable[RuleOperation | str] = (RuleOperation.FORWARD,),
    messages: Iterable[MessageType | str] = tuple(MessageType),
) -> Any:
    """Register a function as an action; `to_csv` becomes `ToCsv` unless a name is given.

    Args:
        name: The action's name in policies; as a plain decorator, the function itself.
        effect: What the action does to a message, which decides its place in the order of actions. With `tells`, it
            runs once for each message instead of for each copy.
        operations: The rule operations in which the action is allowed.
        messages: The message types for which the action is allowed.

    Raises:
        PolicyError: The name, an annotation or an argument is not acceptable.
    """

    def register_function(function: Function) -> Function:
        _register(
            function,
            name,
            ElementRole.ACTION,
            effect=_enum_member(ActionEffect, effect),
            operations=frozenset(_enum_member(RuleOperation, operation) for operation in operations),
            messages=frozenset(_enum_member(MessageType, message) for message in messages),
        )
        return function

    return _as_decorator(name, register_function)


def _as_decorator(name: Any, register_function: Callable[[Function], Function]) -> Any:
    if name is None or isinstance(name, str):
        return register_function
    if not callable(name):
        raise PolicyError(f"the name of an element is a string, not {type(name).__name__}")
    return register_function(name)


def _register(function: Callable[..., Any], name: Any, role: ElementRole, **more: Any) -> None:
    summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
    element_name = name if isinstance(name, str) else _camel_case(function.__name__)
    register(
        Element(
            name=element_name, role=role, summary=summary, parameters=_parameters(function), function=function, **more
        )
    )


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    declared = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not declared or declared[0].kind not in positional:
        raise PolicyError(f"{function.__name__} needs a first parameter: what the rule is applied to")
    hints = typing.get_type_hints(function)
    parameters = []
    for parameter in declared[1:]:
        if parameter.kind not in (*positional, inspect.Parameter.VAR_POSITIONAL):
            raise PolicyError(
                f"{function.__name__}: {parameter.name} cannot be given in a policy, where arguments have no names"
            )
        kind = _argument_kind(hints.get(parameter.name, parameter.empty), function, parameter.name)
        many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        optional = many or parameter.default is not parameter.empty
        plain = optional and not many and isinstance(parameter.default, str | bool | int | float)
        parameters.append(
            Parameter(parameter.name, kind, Constant(parameter.default) if plain else None, optional, many)
        )
    return tuple(parameters)


def _argument_kind(hint: Any, function: Callable[..., Any], what: str) -> ArgumentKind:
    kind = _KINDS.get(typing.get_origin(hint) or hint)
    if kind is None:
        shown = getattr(hint, "__name__", str(hint))
        raise PolicyError(f"{function.__name__}: {what} is str, bool, int, float or list, not {shown}")
    return kind


Word = TypeVar("Word", ActionEffect, RuleOperation, MessageType)


def _enum_member(words: type[Word], word: Word | str) -> Word:
    try:
        return words(word)
    except ValueError:
        raise PolicyError(f"{word!r} is none of {', '.join(words)}") from None


def _camel_case(name: str) -> str:
    if "_" not in name.strip("_") and not name.islower():
        return name
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
