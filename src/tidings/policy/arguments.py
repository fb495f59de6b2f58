"""The arguments of a call when it is made: constants as they are, variables as they are then."""

from typing import Any

from tidings.model.expression import Constant
from tidings.policy.situation import Situation
from tidings.policy.statement import Argument, Publication, Values, Variable


def resolved(argument: Argument, situation: Situation) -> Any:
    """A plain value; a list of them for a list, names and values for an event."""
    match argument:
        case Constant(value):
            return value
        case Variable(name):
            return situation.variable(name)
        case Values():
            return values_of(argument, situation)
        case Publication(attributes):
            return {name: resolved(value, situation) for name, value in attributes}


def values_of(given: Values, situation: Situation) -> list[Any]:
    return [resolved(one, situation) for one in given.items]
