"""Values as a scenario gives them: one, several to choose from, or a range to draw from."""

import re
from collections.abc import Mapping

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.text import written
from tidings.model.values import Value, checked_value
from tidings.simulation.chance import Random

_HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")  # no quantifier of a pattern looks like that


class OneOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice among two numbers, which would be a range otherwise."""

    one_of: list[bool | int | float | str]


Given = bool | int | float | str | list[bool | int | float | str] | OneOf


def drawn(given: Given, chance: Random) -> Value:
    """A list of two numbers is a range, both ends included; with a float in it, floats are drawn. Any other list is a
    choice."""
    if isinstance(given, OneOf):
        return chance.choice(given.one_of)
    if not isinstance(given, list):
        return given
    limits = _range(given)
    if limits is None:
        return chance.choice(given)
    low, high = limits
    return chance.randint(low, high) if isinstance(low, int) and isinstance(high, int) else chance.uniform(low, high)


def drawn_all(given: Mapping[str, Given], chance: Random) -> dict[str, Value]:
    return {name: drawn(one, chance) for name, one in given.items()}


def check_values(key: str, given: Mapping[str, Given]) -> None:
    """`key` is where they stand, for the error."""
    for name, one in given.items():
        options = one.one_of if isinstance(one, OneOf) else one if isinstance(one, list) else [one]
        if not options:
            raise InvalidValueError(f"{key}: {name} has no values to choose from")
        for value in options:
            checked_value(value, f"{key}: {name}")
        limits = _range(one) if isinstance(one, list) else None
        if limits is not None and limits[0] > limits[1]:
            raise InvalidValueError(
                f"{key}: {name} is a range from {limits[1]} to {limits[0]}; the lower number is first"
            )


def filled(text: str, values: Mapping[str, Value]) -> str:
    """A filter's text with values in the place of `{name}`, as the language writes them."""

    def value_of(hole: re.Match[str]) -> str:
        if hole[1] not in values:
            raise InvalidValueError(f"{{{hole[1]}}} is none of `values`")
        return written(Constant(values[hole[1]]))

    return _HOLE.sub(value_of, text)


def _range(given: list[bool | int | float | str]) -> tuple[int | float, int | float] | None:
    numbers = [one for one in given if isinstance(one, int | float) and not isinstance(one, bool)]
    return (numbers[0], numbers[1]) if len(given) == len(numbers) == 2 else None
