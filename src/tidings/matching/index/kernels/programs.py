"""Context filters as programs for a stack machine, which a kernel interprets on the columns of contexts.

Theory of operation: a program is a list of steps in postfix order. Values and truths have a stack each; a value has a
kind, a 64-bit integer and a float. Nothing is compiled to machine code for a single filter. A condition that programs
cannot express (patterns) raises `NotExpressible` and is left to the reference. So are cases that only show with actual
values, whose answer is UNSURE: the order of strings, and distances on the sphere that are too close to the value they
are compared with.
"""

# ruff: noqa: SIM109 - in compiled code a tuple is not the same as two comparisons

import math
from typing import Protocol

import numpy as np

from tidings.matching.formula import folded
from tidings.matching.index.kernels.jit import (
    BYTE_ROWS,
    BYTES,
    FLAG,
    FLOAT_ROWS,
    FLOATS,
    INT32_ROWS,
    INT32S,
    INT64_ROWS,
    INT64S,
    INTEGER,
    kernel,
    part,
)
from tidings.matching.reference import EARTH_RADIUS_METRES
from tidings.model.expression import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    Constant,
    Expression,
    In,
    IsNull,
    Negative,
    Not,
    Or,
    OwnContextValue,
)
from tidings.model.values import Value

NULL, INT, FLOAT, STRING, BOOLEAN, APPROXIMATE = range(6)
FALSE, TRUE, UNKNOWN, UNSURE = range(4)
(
    CONSTANT, OTHER, OWN, NEGATE, ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, DISTANCE, GEO_DISTANCE,
    EQUAL, DIFFERENT, LESS, AT_MOST, MORE, AT_LEAST, IS_NULL, ALL, ANY, NOT, KNOWN,
) = range(22)  # fmt: skip
_ARITHMETIC = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE, "%": REMAINDER}
_COMPARISONS = {"=": EQUAL, "!=": DIFFERENT, "<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}
_STACK = 256
_DEGREE = math.pi / 180  # the factor of `math.radians`
_MANY_TURNS = 2.0**20  # radians above which sines are left to the reference
_OTHER_SIDE = 20_015_000.0  # metres above which an arc sine loses half of its digits
_LARGEST, _SMALLEST = np.int64(2**63 - 1), np.int64(-(2**63))


Program = list[tuple[int, int]]  # steps with an operand: a constant, a context column, or a count of truths


class NotExpressible(Exception):  # noqa: N818 - never leaves the index
    """A condition that programs cannot express."""


class ProgramNumbering(Protocol):
    """Assigns numbers to what a program mentions: values of both parties' contexts, and constants."""

    def other(self, name: str) -> int: ...

    def own(self, name: str) -> int: ...

    def constant(self, value: Value | None) -> int: ...


def compile_condition(condition: Condition, contexts: ProgramNumbering) -> Program:
    """Return the program of a context filter, with numbers from `contexts`.

    Raises `NotExpressible` if a program cannot express the filter or has too many steps.
    """
    steps: list[tuple[int, int]] = []
    _condition(condition, steps, contexts)
    if len(steps) >= _STACK:
        raise NotExpressible
    return steps


def _condition(node: Condition, steps: list[tuple[int, int]], contexts: ProgramNumbering) -> None:
    match node:
        case Constant(constant):
            steps.append((KNOWN, TRUE if constant is True else FALSE if constant is False else UNKNOWN))
        case And(parts) | Or(parts):
            for part in parts:
                _condition(part, steps, contexts)
            steps.append((ALL if isinstance(node, And) else ANY, len(parts)))
        case Not(part):
            _condition(part, steps, contexts)
            steps.append((NOT, 0))
        case Comparison(left, operator, right):
            _value(left, steps, contexts)
            _value(right, steps, contexts)
            steps.append((_COMPARISONS[operator], 0))
        case Between(middle, low, high):
            _condition(And((Comparison(middle, ">=", low), Comparison(middle, "<=", high))), steps, contexts)
        case In(operand, options):
            _condition(Or(tuple(Comparison(operand, "=", option) for option in options)), steps, contexts)
        case IsNull(operand):
            _value(operand, steps, contexts)
            steps.append((IS_NULL, 0))
        case _:
            raise NotExpressible


def _value(node: Expression, steps: list[tuple[int, int]], contexts: ProgramNumbering) -> None:
    match folded(node):  # type: ignore[arg-type]
        case Constant(constant):
            steps.append((CONSTANT, contexts.constant(constant)))
        case Attribute(name):
            steps.append((OTHER, contexts.other(name)))
        case OwnContextValue(name):
            steps.append((OWN, contexts.own(name)))
        case Negative(operand):
            _value(operand, steps, contexts)
            steps.append((NEGATE, 0))
        case Arithmetic(left, operator, right):
            _value(left, steps, contexts)
            _value(right, steps, contexts)
            steps.append((_ARITHMETIC[operator], 0))
        case Call(function, arguments):
            for argument in arguments:
                _value(argument, steps, contexts)
            steps.append((DISTANCE if function == "distance" else GEO_DISTANCE, 0))
        case _:
            raise NotExpressible


@kernel(
    INT32S, INT64S, INT32S, INT32S, INT32S, INT32_ROWS, BYTES, INT64S, FLOATS,
    BYTE_ROWS, INT64_ROWS, FLOAT_ROWS, BYTE_ROWS, INT64_ROWS, FLOAT_ROWS, FLAG,
)  # fmt: skip
def run_programs(
    positions, which, program_of, client_of, first, steps, ck, ci, cf,
    other_k, other_i, other_f, kinds, ints, floats, swapped,
):  # fmt: skip
    """Run the program of each position; return TRUE, FALSE, UNKNOWN or UNSURE for each.

    Without a program (-1) the answer is TRUE; for other negative numbers it is UNSURE.

    Args:
        positions: The positions.
        which: For each position the row of the other party; if empty, there is a single other party.
        program_of: The program of each position; with a single entry, the program of all.
        client_of: The row of each position's client.
        first: Where the steps of each program begin.
        steps: The steps of all programs.
        ck: The kinds of the constants.
        ci: The integers of the constants.
        cf: The floats of the constants.
        other_k: The kinds of the other parties' values.
        other_i: The integers of the other parties' values.
        other_f: The floats of the other parties' values.
        kinds: The kinds of the clients' values.
        ints: The integers of the clients' values.
        floats: The floats of the clients' values.
        swapped: Whether `this.` refers to the other party, as in an event's `subscribers`.
    """
    answers = np.empty(len(positions), np.uint8)
    k, i, f = np.empty(_STACK, np.uint8), np.empty(_STACK, np.int64), np.empty(_STACK, np.float64)
    t = np.empty(_STACK, np.uint8)
    for p in range(len(positions)):
        position = positions[p]
        program = program_of[0] if len(program_of) == 1 else program_of[position]
        if program < 0:
            answers[p] = TRUE if program == -1 else UNSURE
            continue
        client, other = client_of[position], which[p] if len(which) else 0
        v = w = 0
        unsure = False
        for s in range(first[program], first[program + 1]):
            step, number = steps[s, 0], steps[s, 1]
            if step == CONSTANT:
                k[v], i[v], f[v] = ck[number], ci[number], cf[number]
                v += 1
            elif step == OTHER or step == OWN:
                if (step == OWN) != swapped:
                    if client >= 0 and number < kinds.shape[1]:
                        k[v], i[v], f[v] = kinds[client, number], ints[client, number], floats[client, number]
                    else:
                        k[v] = NULL
                elif number < other_k.shape[1]:
                    k[v], i[v], f[v] = other_k[other, number], other_i[other, number], other_f[other, number]
                else:
                    k[v] = NULL
                v += 1
            elif step == NEGATE:
                unsure = unsure or k[v - 1] == APPROXIMATE
                k[v], i[v], f[v] = k[v - 1], i[v - 1], f[v - 1]
                k[v - 1], i[v - 1], f[v - 1] = INT, 0, 0.0
                k[v - 1], i[v - 1], f[v - 1] = calculate(SUBTRACT, INT, 0, 0.0, k[v], i[v], f[v])
            elif step <= REMAINDER:
                v -= 1
                unsure = unsure or k[v - 1] == APPROXIMATE or k[v] == APPROXIMATE
                k[v - 1], i[v - 1], f[v - 1] = calculate(step, k[v - 1], i[v - 1], f[v - 1], k[v], i[v], f[v])
            elif step == DISTANCE or step == GEO_DISTANCE:
                v -= 3
                numeric = True
                for n in range(v - 1, v + 3):
                    numeric = numeric and (k[n] == INT or k[n] == FLOAT)
                    unsure = unsure or k[n] == APPROXIMATE
                if step == GEO_DISTANCE:
                    k[v - 1], f[v - 1] = sphere_distance(f[v - 1], f[v], f[v + 1], f[v + 2]) if numeric else (NULL, 0.0)
                    unsure = unsure or np.isnan(f[v - 1])
                    continue
                dx, dy = f[v + 1] - f[v - 1], f[v + 2] - f[v]
                length = np.sqrt(dx * dx + dy * dy) if numeric else 0.0
                k[v - 1] = FLOAT if numeric and np.isfinite(length) else NULL
                i[v - 1], f[v - 1] = 0, length
            elif step <= AT_LEAST:
                v -= 2
                answer = compare(step, k[v], i[v], f[v], k[v + 1], i[v + 1], f[v + 1])
                unsure = unsure or answer == UNSURE
                t[w] = answer
                w += 1
            elif step == IS_NULL:
                v -= 1
                t[w] = TRUE if k[v] == NULL else FALSE
                w += 1
            elif step == KNOWN:
                t[w] = number
                w += 1
            elif step == NOT:
                t[w - 1] = UNKNOWN if t[w - 1] == UNKNOWN else TRUE - t[w - 1]
            else:
                decisive = FALSE if step == ALL else TRUE
                w -= number
                answer = TRUE - decisive
                for n in range(w, w + number):
                    if t[n] == decisive:
                        answer = decisive
                        break
                    if t[n] == UNKNOWN:
                        answer = UNKNOWN
                t[w] = answer
                w += 1
        answers[p] = UNSURE if unsure else t[0]
    return answers


@part
def compare(step, k1, i1, f1, k2, i2, f2):
    """Compare two values, each with kind, integer and float; return TRUE, FALSE, UNKNOWN or UNSURE.

    Args:
        step: The comparison.
        k1: The left value's kind.
        i1: The left value's integer.
        f1: The left value's float.
        k2: The right value's kind.
        i2: The right value's integer.
        f2: The right value's float.
    """
    if k1 == APPROXIMATE or k2 == APPROXIMATE:
        if k1 == NULL or k1 == STRING or k1 == BOOLEAN or k2 == NULL or k2 == STRING or k2 == BOOLEAN:
            return UNKNOWN
        larger = max(abs(f1), abs(f2))
        if abs(f1 - f2) <= (1.0 if larger > _OTHER_SIDE else 1e-9 * larger + 1e-6):
            return UNSURE
        order = -1 if f1 < f2 else 1
    elif (k1 == INT or k1 == FLOAT) and (k2 == INT or k2 == FLOAT):
        if f1 != f2:
            order = -1 if f1 < f2 else 1
        else:
            r1, r2 = float_rest(k1, i1, f1), float_rest(k2, i2, f2)
            order = -1 if r1 < r2 else 1 if r1 > r2 else 0
    elif k1 == STRING and k2 == STRING:
        if step != EQUAL and step != DIFFERENT:
            return UNSURE
        order = 0 if i1 == i2 else 1
    elif k1 == BOOLEAN and k2 == BOOLEAN and (step == EQUAL or step == DIFFERENT):
        order = 0 if i1 == i2 else 1
    else:
        return UNKNOWN
    if step == EQUAL:
        return TRUE if order == 0 else FALSE
    if step == DIFFERENT:
        return TRUE if order != 0 else FALSE
    if step == LESS:
        return TRUE if order < 0 else FALSE
    if step == AT_MOST:
        return TRUE if order <= 0 else FALSE
    if step == MORE:
        return TRUE if order > 0 else FALSE
    return TRUE if order >= 0 else FALSE


@part
def sphere_distance(lat1, lon1, lat2, lon2):
    """Return the kind and value of a distance along the sphere, calculated as the reference does.

    It is APPROXIMATE, since the last bit of a sine differs between libraries; NaN for angles so large that more bits
    differ.

    Args:
        lat1: The first point's latitude in degrees.
        lon1: The first point's longitude in degrees.
        lat2: The second point's latitude in degrees.
        lon2: The second point's longitude in degrees.
    """
    half_turn = (lon2 - lon1) * _DEGREE / 2
    if abs(lat1) > 90.0 or abs(lat2) > 90.0 or not np.isfinite(half_turn):
        return NULL, 0.0
    if abs(half_turn) > _MANY_TURNS:
        return APPROXIMATE, np.nan
    phi1, phi2 = lat1 * _DEGREE, lat2 * _DEGREE
    across, along = np.sin((phi2 - phi1) / 2), np.sin(half_turn)
    h = across * across + np.cos(phi1) * np.cos(phi2) * along * along
    return APPROXIMATE, 2 * EARTH_RADIUS_METRES * np.arcsin(min(1.0, np.sqrt(h)))


@part
def float_rest(k, i, f):
    """Return what an integer lost when it became a float; 0 for other kinds."""
    if k != INT:
        return 0
    if f >= 9.223372036854775807e18:
        return (i - _LARGEST) - 1
    return i - np.int64(f)


@part
def calculate(step, k1, i1, f1, k2, i2, f2):
    """Apply an arithmetic operation to two values; return kind, integer and float, with the kind NULL for no result.

    Args:
        step: The operation.
        k1: The left value's kind.
        i1: The left value's integer.
        f1: The left value's float.
        k2: The right value's kind.
        i2: The right value's integer.
        f2: The right value's float.
    """
    if not ((k1 == INT or k1 == FLOAT) and (k2 == INT or k2 == FLOAT)):
        return NULL, np.int64(0), 0.0
    if (step == DIVIDE or step == REMAINDER) and f2 == 0.0:
        return NULL, np.int64(0), 0.0
    if k1 == INT and k2 == INT and step != DIVIDE:
        fits, result = integer_operation(step, i1, i2)
        return (INT if fits else NULL), result, np.float64(result)
    if step == ADD:
        value = f1 + f2
    elif step == SUBTRACT:
        value = f1 - f2
    elif step == MULTIPLY:
        value = f1 * f2
    elif step == DIVIDE:
        value = f1 / f2
    else:
        value = np.fmod(f1, f2)
    return (FLOAT if np.isfinite(value) else NULL), np.int64(0), value


@part
def integer_operation(step, a, b):
    """Apply an operation to 64-bit integers; return whether the result fits, and the result."""
    if step == ADD:
        result = a + b
        return ((a ^ result) & (b ^ result)) >= 0, result
    if step == SUBTRACT:
        result = a - b
        return ((a ^ b) & (a ^ result)) >= 0, result
    if step == REMAINDER:
        if b == -1:
            return True, np.int64(0)
        result = a % b  # it has the sign of the divisor, but SQL wants that of the dividend
        if result != 0 and (result < 0) != (a < 0):
            result -= b
        return True, result
    return product_fits(a, b), a * b


@part
def product_fits(a, b):
    """Return whether a product of 64-bit integers fits into 64 bits.

    It multiplies unsigned halves, since compilers assume that signed products do not overflow.
    """
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x = np.uint64(a) if a >= 0 else np.uint64(0) - np.uint64(a)
    y = np.uint64(b) if b >= 0 else np.uint64(0) - np.uint64(b)
    x1, x0, y1, y0 = x >> half, x & low, y >> half, y & low
    if x1 != 0 and y1 != 0:
        return False
    middle = x1 * y0 + x0 * y1
    if middle >> half != 0:
        return False
    rest = (middle & low) << half
    total = rest + x0 * y0
    if total < rest:
        return False
    most = np.uint64(_LARGEST) + np.uint64((a < 0) != (b < 0))
    return total <= most


@kernel(BYTES, INT64S, FLOATS, INT32S, INT64S, INT64S, INTEGER, BYTE_ROWS, INT64_ROWS, FLOAT_ROWS)
def write_rows(kinds, ints, floats, sizes, rows, places, width, kind, whole, number):
    """Write new contexts into the tables in order, and remove values that are not named.

    Return which of them changed something.

    Args:
        kinds: The table of kinds, flat.
        ints: The table of integers, flat.
        floats: The table of floats, flat.
        sizes: The number of values in each row of the tables.
        rows: The row of each new context.
        places: The column of each name.
        width: The number of columns of the tables.
        kind: The kinds of the new values, by name and context.
        whole: The integers of the new values, by name and context.
        number: The floats of the new values, by name and context.
    """
    changed = np.zeros(len(rows), np.bool_)
    named = np.zeros(width, np.bool_)
    for place in places:
        named[place] = True
    for r in range(len(rows)):
        first, differs, size, before = rows[r] * width, False, 0, 0
        for c in range(len(places)):
            at, new = first + places[c], kind[c, r]
            before += kinds[at] != NULL
            if kinds[at] != new or (floats[at] != number[c, r] if new == FLOAT else ints[at] != whole[c, r]):
                differs = True
                kinds[at], ints[at], floats[at] = new, whole[c, r], number[c, r]
            size += new != NULL
        if sizes[rows[r]] > before:  # the row has values of other names
            for column in range(width):
                if not named[column] and kinds[first + column] != NULL:
                    kinds[first + column], ints[first + column], floats[first + column] = NULL, 0, 0.0
                    differs = True
        sizes[rows[r]] = size
        changed[r] = differs
    return changed


@kernel(INT64S, INT64S, INT64S, INT32S, INT64S, INT64S)
def last_changes(rows, before, event, client, last, out):
    """Write for each pair the last change of its client before its event, -1 without one.

    Args:
        rows: The client of each change.
        before: For each event, how many changes come before it.
        event: The event of each pair, ascending.
        client: The client of each pair.
        last: An array of -1 for every client; it is restored before returning.
        out: Where the changes are written.
    """
    done = 0
    for p in range(len(event)):
        while done < before[event[p]]:
            last[rows[done]] = done
            done += 1
        out[p] = last[client[p]]
    for c in range(done):
        last[rows[c]] = -1
