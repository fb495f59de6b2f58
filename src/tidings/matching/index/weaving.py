"""Texts woven out of fragments: many JSON objects that share their members, each member written once."""

import numpy as np

from tidings.matching.index.compiling import BYTES, INT64S, INTEGER, kernel

_OPEN, _COMMA, _CLOSE = ord("{"), ord(","), ord("}")


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INTEGER, INTEGER, BYTES)
def weave(which, row, first, member, ends, rows, columns, fragments):
    """Object k has the members of list `which[k]`, as row `row[k]` has them; a fragment of no bytes is left out.

    The members of list i are `member[first[i] : first[i + 1]]`. One below `columns` names a column of fragments, one
    for each of the `rows`; the others stand behind the columns and are the same for every row. Returns where each
    object ends, and the bytes of all.
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
