"""Checks that the tables of several files share.

What is wrong with a key is told as `key: what to change`: `TomlFile` finds the line by that.
"""

from collections.abc import Callable, Collection

from tidings.model.errors import InvalidValueError, TidingsError


def one_of(key: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise InvalidValueError(f"{key}: '{value}' is none of {', '.join(known)}")


def at_least_one(key: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidValueError(f"{key}: must be at least 1")


def readable(key: str, read: Callable[..., object], *given: object) -> None:
    """An error of a text names the key that it stands under."""
    try:
        read(*given)
    except TidingsError as error:
        raise InvalidValueError(f"{key}: {error}") from None
