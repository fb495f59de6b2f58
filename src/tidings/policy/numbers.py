"""Numbers in policies: how they are read and written."""

import math

from tidings.model.limits import MAX_INTEGER, MIN_INTEGER


def read_number(written: str) -> int | float:
    """An integer of 64 bits or a finite float, or a ValueError that says why not."""
    digits = written.lstrip("+-")
    if digits.isdigit():
        number = int(written) if len(digits) < 25 else MAX_INTEGER + 1
        if not MIN_INTEGER <= number <= MAX_INTEGER:
            raise ValueError("the integer does not fit into 64 bits; with a decimal point it is a float")
        return number
    value = float(written)
    if not math.isfinite(value):
        raise ValueError("the number is too large for a float")
    return value + 0.0  # -0.0 is 0.0: equal numbers have one text


def written_number(value: int | float) -> str:
    return repr(value + 0.0) if isinstance(value, float) else str(value)
