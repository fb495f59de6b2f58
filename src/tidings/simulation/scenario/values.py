"""Values in a scenario: a constant, a choice or a range to draw from."""

import re
from collections.abc import Mapping

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.printer import format_expression
from tidings.model.values import Value, checked_value
from tidings.simulation.rng import Random

_HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")  # differs from every quantifier of a regular expression


class OneOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice. Needed for two numbers, which as a list would be a range."""

    one_of: list[bool | int | float | str]


ValueChoice = bool | int | float | str | list[bool | int | float | str] | OneOf


def draw_value(choice: ValueChoice, rng: Random) -> Value:
    """Draw a value.

    A list of two numbers is a range, both ends included; if one is a float, floats are drawn. Any other list is a
    choice.
    """
    if isinstance(choice, OneOf):
        return rng.choice(choice.one_of)
    if not isinstance(choice, list):
        return choice
    limits = _range(choice)
    if limits is None:
        return rng.choice(choice)
    low, high = limits
    return rng.randint(low, high) if isinstance(low, int) and isinstance(high, int) else rng.uniform(low, high)


def draw_values(choices: Mapping[str, ValueChoice], rng: Random) -> dict[str, Value]:
    """Draw a value for each name."""
    return {name: draw_value(choice, rng) for name, choice in choices.items()}


def check_values(key: str, choices: Mapping[str, ValueChoice]) -> None:
    """Raise `InvalidValueError` for an empty choice, a bad value or a reversed range; `key` names the place for the
    error."""
    for name, choice in choices.items():
        options = choice.one_of if isinstance(choice, OneOf) else choice if isinstance(choice, list) else [choice]
        if not options:
            raise InvalidValueError(f"{key}: {name} has no values to choose from")
        for value in options:
            checked_value(value, f"{key}: {name}")
        limits = _range(choice) if isinstance(choice, list) else None
        if limits is not None and limits[0] > limits[1]:
            raise InvalidValueError(
                f"{key}: {name} is a range from {limits[1]} to {limits[0]}; the lower number is first"
            )


def fill_template(text: str, values: Mapping[str, Value]) -> str:
    """Return a filter's text with each `{name}` replaced by its value, as a literal of the filter language."""

    def value_of(hole: re.Match[str]) -> str:
        if hole[1] not in values:
            raise InvalidValueError(f"{{{hole[1]}}} is none of `values`")
        return format_expression(Constant(values[hole[1]]))

    return _HOLE.sub(value_of, text)


def _range(options: list[bool | int | float | str]) -> tuple[int | float, int | float] | None:
    """Return the limits if the list is a range, else None."""
    numbers = [option for option in options if isinstance(option, int | float) and not isinstance(option, bool)]
    return (numbers[0], numbers[1]) if len(options) == len(numbers) == 2 else None
