"""Which rule elements are known: the built-in ones, and one's own, registered with a decorator.

The function of an element of one's own is given what the rule is applied to, and then the arguments of the call, so
its parameters from the second on are the element's. Annotations `str`, `bool`, `int`, `float` and `list` are checked
when a policy is read; without one, any single value is welcome.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.policy.elements import BUILT_IN, Effect, Element, Kind, Parameter, Role
from tidings.policy.statement import Matching, MessageType, Operation, Publication

Function = TypeVar("Function", bound=Callable[..., Any])

KEYWORDS = ("PolicyStatement", "On", "If", "Elseif", "Then", "OnException")
_RESERVED = frozenset(word.lower() for word in (*KEYWORDS, "Else", "In", "And", "Or", "Not", "True", "False"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS: dict[Any, Kind] = {
    str: Kind.STRING,
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    list: Kind.LIST,
    tuple: Kind.LIST,
    Publication: Kind.PUBLICATION,
    Any: Kind.VALUE,
    inspect.Parameter.empty: Kind.VALUE,
}
_known: dict[str, Element] = {element.name: element for element in BUILT_IN}


_changes = 0


def version() -> int:
    """Another number whenever an element was registered or taken back."""
    return _changes


def find(name: str) -> Element | None:
    return _known.get(name)


def names(role: Role | None = None) -> tuple[str, ...]:
    """The names of all elements, or of all conditions or actions."""
    return tuple(name for name, element in _known.items() if role in (None, element.role))


def register(element: Element) -> None:
    """Adds an element, or raises a `PolicyError` if its name is taken, reserved or no name."""
    name = element.name
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        raise PolicyError(f"{name[:40]!r} is no name for an element; it takes letters, digits and _")
    if name.lower() in _RESERVED:
        raise PolicyError(f"{name} is a word of the language; choose another name")
    taken = next((one for one in _known if one.lower() == name.lower()), None)
    if taken is not None:
        built_in = " and built in" if any(one.name == taken for one in BUILT_IN) else ""
        raise PolicyError(f"{taken} is registered already{built_in}; choose another name")
    global _changes
    _known[name] = element
    _changes += 1


def unregister(name: str) -> None:
    """Takes one of one's own elements back; what is built in stays."""
    if any(one.name == name for one in BUILT_IN):
        raise PolicyError(f"{name} is built in and stays")
    global _changes
    _known.pop(name, None)
    _changes += 1


@overload
def policy_condition(name: Function) -> Function: ...
@overload
def policy_condition(
    name: str | None = None, *, needs_receiver: bool = False, needs_filter: bool = False
) -> Callable[[Function], Function]: ...
def policy_condition(name: Any = None, *, needs_receiver: bool = False, needs_filter: bool = False) -> Any:
    """Registers a function as a condition; `is_weekend` becomes `IsWeekend` unless a name is given.

    The annotation of what it returns says what it may be compared with; without one it is true or false.
    """

    def registered(function: Function) -> Function:
        gives = _kind_of(typing.get_type_hints(function).get("return", bool), function, "what it returns")
        more: dict[str, Any] = {"operations": frozenset({Operation.FORWARD})} if needs_receiver else {}
        more |= {"matching": frozenset({Matching.AFTER})} if needs_receiver or needs_filter else {}
        _register(
            function,
            name,
            Role.CONDITION,
            gives=gives,
            needs_receiver=needs_receiver,
            needs_filter=needs_filter,
            **more,
        )
        return function

    return _decorated(name, registered)


@overload
def policy_action(name: Function) -> Function: ...
@overload
def policy_action(
    name: str | None = None,
    *,
    effect: Effect | str = Effect.ADDS,
    operations: Iterable[Operation | str] = (Operation.FORWARD,),
    messages: Iterable[MessageType | str] = tuple(MessageType),
) -> Callable[[Function], Function]: ...
def policy_action(
    name: Any = None,
    *,
    effect: Effect | str = Effect.ADDS,
    operations: Iterable[Operation | str] = (Operation.FORWARD,),
    messages: Iterable[MessageType | str] = tuple(MessageType),
) -> Any:
    """Registers a function as an action; `to_csv` becomes `ToCsv` unless a name is given.

    `effect` says when its turn comes among several, and whether it is for the copy or, with `tells`, for the message.
    """

    def registered(function: Function) -> Function:
        _register(
            function,
            name,
            Role.ACTION,
            effect=_one_of(Effect, effect),
            operations=frozenset(_one_of(Operation, one) for one in operations),
            messages=frozenset(_one_of(MessageType, one) for one in messages),
        )
        return function

    return _decorated(name, registered)


def _decorated(name: Any, registered: Callable[[Function], Function]) -> Any:
    if name is None or isinstance(name, str):
        return registered
    if not callable(name):
        raise PolicyError(f"the name of an element is a string, not {type(name).__name__}")
    return registered(name)


def _register(function: Callable[..., Any], name: Any, role: Role, **more: Any) -> None:
    summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
    given = name if isinstance(name, str) else _camel(function.__name__)
    register(
        Element(name=given, role=role, summary=summary, parameters=_parameters(function), function=function, **more)
    )


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    declared = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not declared or declared[0].kind not in positional:
        raise PolicyError(f"{function.__name__} needs a first parameter: what the rule is applied to")
    hints = typing.get_type_hints(function)
    found = []
    for one in declared[1:]:
        if one.kind not in (*positional, inspect.Parameter.VAR_POSITIONAL):
            raise PolicyError(
                f"{function.__name__}: {one.name} cannot be given in a policy, where arguments have no names"
            )
        kind = _kind_of(hints.get(one.name, one.empty), function, one.name)
        many = one.kind is inspect.Parameter.VAR_POSITIONAL
        optional = many or one.default is not one.empty
        plain = optional and not many and isinstance(one.default, str | bool | int | float)
        found.append(Parameter(one.name, kind, Constant(one.default) if plain else None, optional, many))
    return tuple(found)


def _kind_of(hint: Any, function: Callable[..., Any], what: str) -> Kind:
    kind = _KINDS.get(typing.get_origin(hint) or hint)
    if kind is None:
        shown = getattr(hint, "__name__", str(hint))
        raise PolicyError(f"{function.__name__}: {what} is str, bool, int, float or list, not {shown}")
    return kind


Word = TypeVar("Word", Effect, Operation, MessageType)


def _one_of(words: type[Word], given: Word | str) -> Word:
    try:
        return words(given)
    except ValueError:
        raise PolicyError(f"{given!r} is none of {', '.join(words)}") from None


def _camel(name: str) -> str:
    if "_" not in name.strip("_") and not name.islower():
        return name
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
