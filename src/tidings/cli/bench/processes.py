"""What this process and all that it has started use, as Linux tells it."""

import os
from pathlib import Path

_PROC = Path("/proc")


def processor() -> float:
    """Seconds of processor time, of those that have ended too."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(map(int, fields[11:15])) / ticks for fields in _family().values())


def memory() -> int:
    """Bytes; what several of them share, such as a mapped file, is counted once."""
    return sum(_bytes(number, "Pss:") for number in _family())


def resident(process: int) -> int:
    """Bytes that one process has in memory."""
    return _bytes(process, "Rss:")


def _bytes(process: int, which: str) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(which))


def _family() -> dict[int, list[str]]:
    """The fields of `stat`, from the state on, by process."""
    known = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            known[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
    found: dict[int, list[str]] = {}
    mine = {os.getpid()}
    while mine:
        found |= {one: known[one] for one in mine if one in known}
        mine = {child for child, fields in known.items() if int(fields[1]) in mine}
    return found
