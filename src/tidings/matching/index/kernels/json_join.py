"""Compose many JSON objects that share members from fragments of text that are encoded only once."""

import numpy as np

from tidings.matching.index.kernels.jit import BYTES, INT64S, INTEGER, kernel

_OPEN, _COMMA, _CLOSE = ord("{"), ord(","), ord("}")


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INTEGER, INTEGER, BYTES)
def weave(which, row, first, member, ends, rows, columns, fragments):
    """Return where each JSON object ends, and the bytes of all of them.

    Object k has the members in list `which[k]`, with the values of row `row[k]`; a member whose fragment is empty is
    left out. The members of list i are `member[first[i] : first[i + 1]]`. A member below `columns` is a column with one
    fragment for each row; the others are constants, whose fragments follow those of the columns.

    Args:
        which: The list of members of each object.
        row: The row of each object.
        first: Where each list begins in `member`.
        member: The members of all lists.
        ends: Where each fragment begins in `fragments`; one more at the end.
        rows: The number of rows.
        columns: The number of columns.
        fragments: The bytes of all fragments.
    """
    most = 0
    for k in range(len(which)):
        most += 2
        for at in range(first[which[k]], first[which[k] + 1]):
            m = member[at]
            f = m * rows + row[k] if m < columns else columns * rows + m - columns
            most += ends[f + 1] - ends[f] + 1
    out, stops = np.empty(most, np.uint8), np.zeros(len(which) + 1, np.int64)
    filled = 0
    for k in range(len(which)):
        out[filled] = _OPEN
        filled += 1
        begin = filled
        for at in range(first[which[k]], first[which[k] + 1]):
            m = member[at]
            f = m * rows + row[k] if m < columns else columns * rows + m - columns
            if ends[f] == ends[f + 1]:
                continue
            if filled > begin:
                out[filled] = _COMMA
                filled += 1
            for byte in range(ends[f], ends[f + 1]):
                out[filled] = fragments[byte]
                filled += 1
        out[filled] = _CLOSE
        filled += 1
        stops[k + 1] = filled
    return stops, out[:filled]
